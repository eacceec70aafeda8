"""Fences of key ranges: the cases of an opening, and that every key is delivered exactly once."""

from __future__ import annotations

from random import Random

import pytest

from headwater.materialize.drivers.fences import CannotJoin, FenceRow, install
from headwater.materialize.key_range import KeyHash, KeyRange


def _range(begin: int, end: int) -> KeyRange:
    return KeyRange(KeyHash(begin), KeyHash(end))


def _row(begin: int, end: int, fence: int, checkpoint: str) -> FenceRow:
    return FenceRow(_range(begin, end), fence, checkpoint)


def test_the_first_opening() -> None:
    decided = install([_row(0, 9, 5, "x")], _range(10, 19), "zero")
    assert (decided.row, decided.raised, decided.removed) == (_row(10, 19, 1, "zero"), (), ())


def test_opening_again() -> None:
    decided = install([_row(0, 9, 5, "x"), _row(10, 19, 1, "y")], _range(0, 9), "zero")
    assert (decided.row, decided.raised, decided.removed) == (_row(0, 9, 6, "x"), (), ())


def test_a_split_inherits_from_the_narrowest_range_that_covers_it() -> None:
    rows = [_row(0, 99, 3, "wide"), _row(0, 49, 7, "narrow"), _row(50, 99, 1, "other")]
    decided = install(rows, _range(0, 24), "zero")
    assert decided.row == _row(0, 24, 8, "narrow")
    assert decided.raised == (_row(0, 99, 4, "wide"), _row(0, 49, 8, "narrow"))
    assert decided.removed == ()


def test_a_join_goes_on_where_its_parents_stand_together() -> None:
    rows = [_row(50, 99, 9, "same"), _row(0, 49, 3, "same")]
    decided = install(rows, _range(0, 99), "zero")
    assert decided.row == _row(0, 99, 10, "same")
    assert {*decided.removed} == {_range(0, 49), _range(50, 99)}


def test_a_range_that_was_split_does_not_return_to_its_old_checkpoint() -> None:
    halves = [_row(0, 49, 5, "new"), _row(50, 99, 5, "new")]
    old = _row(0, 99, 4, "old")
    assert install([old, *halves], _range(0, 99), "zero").row == _row(0, 99, 6, "new")
    with pytest.raises(CannotJoin):
        install([old, halves[0]], _range(0, 99), "zero")


@pytest.mark.parametrize(
    "rows",
    [
        [_row(0, 49, 1, "a"), _row(50, 99, 1, "b")],  # at different checkpoints
        [_row(0, 49, 1, "a")],  # a part that nobody delivered
        [_row(0, 49, 1, "a"), _row(60, 99, 1, "a")],  # a gap
        [_row(10, 49, 1, "a"), _row(50, 99, 1, "a")],  # after our begin
    ],
)
def test_a_straddle_is_refused(rows: list[FenceRow]) -> None:
    with pytest.raises(CannotJoin, match="one checkpoint"):
        install(rows, _range(0, 99), "zero")


class _Endpoint:
    """Rows with fences, and how often each key got the change of each time."""

    def __init__(self) -> None:
        self.rows: dict[KeyRange, FenceRow] = {}
        self.delivered = {(key, time): 0 for key in range(8) for time in range(100)}

    def open(self, opened: KeyRange) -> FenceRow:
        decided = install(list(self.rows.values()), opened, "0")
        for removed in decided.removed:
            del self.rows[removed]
        for row in (*decided.raised, decided.row):
            self.rows[row.key_range] = row
        return decided.row

    def commit(self, session: FenceRow, upper: int) -> bool:
        row = self.rows.get(session.key_range)
        if row is None or row.fence != session.fence:
            return False
        for key in range(session.key_range.begin, session.key_range.end + 1):
            for time in range(int(row.checkpoint), upper):
                self.delivered[key, time] += 1
        self.rows[session.key_range] = FenceRow(row.key_range, row.fence, str(upper))
        return True


@pytest.mark.parametrize("seed", range(40))
def test_splits_joins_and_zombies_deliver_exactly_once(seed: int) -> None:
    random = Random(seed)
    endpoint = _Endpoint()
    whole = _range(0, 7)
    sessions = [endpoint.open(whole)]
    clock, joins = 0, 0
    for _ in range(60):
        clock += random.randint(0, 1)
        session = random.choice(sessions)  # Most of them are zombies by now.
        committed = endpoint.commit(session, clock)
        newer = sessions[sessions.index(session) + 1 :]
        fenced = any(later.key_range.overlaps(session.key_range) for later in newer)
        assert committed == (not fenced), f"seed {seed}: {session}"
        if random.random() < 0.5:
            opened = whole
            while random.random() < 0.6 and opened.begin < opened.end:
                opened = random.choice(opened.split())
            try:
                sessions.append(endpoint.open(opened))
                joins += 1
            except CannotJoin:
                continue
    # In the end everything is drained to one time, joined, and every change is there once.
    for key_range in list(endpoint.rows):
        owners = [s for s in sessions if s.fence == endpoint.rows[key_range].fence]
        for session in owners:
            endpoint.commit(session, clock)
    live = [s for s in sessions if endpoint.commit(s, clock)]
    covered = {k for s in live for k in range(s.key_range.begin, s.key_range.end + 1)}
    for (key, time), times in endpoint.delivered.items():
        assert times <= 1, f"seed {seed}: key {key} got time {time} {times} times"
        if key in covered and time < clock:
            assert times == 1, f"seed {seed}: key {key} never got time {time}"
    assert joins
