"""The contract of ``Consensus``, as checks that every implementation must pass.

A check takes a function that opens *the same, initially empty* log each time it is called (for
memory: returns the same object). It asserts; it needs no test framework. Usage as in
``conformance_blob``. The contract stands in ``headwater.persist.location``.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from random import Random
from threading import Barrier, Event
from typing import Final

from headwater.base.errors import InvalidUsage
from headwater.base.ids import SeqNo
from headwater.persist.location import Committed, Consensus, LogEntry, LostRace

OpenConsensus = Callable[[], Consensus]

RACERS: Final = 8
SEQNO_MAX: Final = 2**63 - 1


def check_empty_log(open_consensus: OpenConsensus) -> None:
    """Head: "None where nothing was ever committed"."""
    log = open_consensus()
    assert log.head() is None
    assert log.scan(SeqNo(0), 10) == ()
    _assert_refused(lambda: log.truncate(SeqNo(0)))
    _assert_refused(lambda: log.truncate(SeqNo(1)))


def check_first_is_zero(open_consensus: OpenConsensus) -> None:
    """Append: "iff that is 0 for an empty log"."""
    log = open_consensus()
    for wrong in (1, 2, SEQNO_MAX):
        assert log.append(SeqNo(wrong), b"x") == LostRace(None)
    assert log.head() is None
    assert log.append(SeqNo(0), b"zero") == Committed()
    assert log.head() == 0
    assert log.scan(SeqNo(0), 10) == (LogEntry(SeqNo(0), b"zero"),)


def check_append_is_head_plus_one(open_consensus: OpenConsensus) -> None:
    """Append: "else exactly head + 1"; otherwise LostRace says where the log is."""
    log = open_consensus()
    _fill(log, 3)
    for wrong in (0, 1, 2, 4, 5, SEQNO_MAX):
        assert log.append(SeqNo(wrong), b"x") == LostRace(SeqNo(2))
    assert log.scan(SeqNo(0), 10) == _entries(0, 3), "a lost race changes nothing"
    assert log.append(SeqNo(3), b"entry 3") == Committed()
    assert log.scan(SeqNo(0), 10) == _entries(0, 4)


def check_content_is_kept(open_consensus: OpenConsensus) -> None:
    """Entries are bytes: empty ones, all byte values, large ones."""
    log = open_consensus()
    contents = (b"", bytes(range(256)), Random(1).randbytes(1_000_000), b"\x00")
    for number, content in enumerate(contents):
        assert log.append(SeqNo(number), content) == Committed()
    assert tuple(entry.data for entry in log.scan(SeqNo(0), 10)) == contents


def check_race_has_one_winner_per_seqno(open_consensus: OpenConsensus) -> None:
    """Of eight appenders each seqno has exactly one winner, and its entry is what is read."""
    logs = [open_consensus() for _ in range(RACERS)]
    start = Barrier(RACERS)

    def run(racer: int) -> dict[int, bytes]:
        won: dict[int, bytes] = {}
        start.wait()
        for number in range(50):
            data = b"%d by %d" % (number, racer)
            match logs[racer].append(SeqNo(number), data):
                case Committed():
                    won[number] = data
                case LostRace(head):
                    assert head is not None
                    assert head >= number, "who lost the race for a seqno finds it committed"
        return won

    with ThreadPoolExecutor(RACERS) as pool:
        outcomes = list(pool.map(run, range(RACERS)))
    assert sum(len(won) for won in outcomes) == 50
    winners = {number: data for won in outcomes for number, data in won.items()}
    assert logs[0].head() == 49
    assert {entry.seqno: entry.data for entry in logs[0].scan(SeqNo(0), 100)} == winners


def check_race_for_the_next_seqno(open_consensus: OpenConsensus) -> None:
    """Appenders that follow the head lose no committed entry and leave no gap."""
    logs = [open_consensus() for _ in range(RACERS)]
    start = Barrier(RACERS)

    def run(racer: int) -> list[int]:
        won: list[int] = []
        start.wait()
        head = logs[racer].head()
        while len(won) < 6:
            number = 0 if head is None else head + 1
            match logs[racer].append(SeqNo(number), b"by %d" % racer):
                case Committed():
                    won.append(number)
                    head = SeqNo(number)
                case LostRace(now):
                    assert now is not None
                    assert now >= number
                    head = now
        return won

    with ThreadPoolExecutor(RACERS) as pool:
        outcomes = list(pool.map(run, range(RACERS)))
    assert sorted(number for won in outcomes for number in won) == list(range(6 * RACERS))
    for entry in logs[0].scan(SeqNo(0), 1_000):
        assert entry.seqno in outcomes[int(entry.data.removeprefix(b"by "))]


def check_head_is_linearizable(open_consensus: OpenConsensus) -> None:
    """Head: "reflects every append that returned before this call began", also elsewhere."""
    writer, reader = open_consensus(), open_consensus()
    for number in range(20):
        writer.append(SeqNo(number), b"x")
        assert reader.head() == number
        assert reader.scan(SeqNo(number), 1) == (LogEntry(SeqNo(number), b"x"),)
        writer, reader = reader, writer


def check_scan_limits(open_consensus: OpenConsensus) -> None:
    """Scan: "up to limit entries from start on, ascending; empty past the end"."""
    log = open_consensus()
    _fill(log, 10)
    for start in (0, 1, 8, 9, 10, 11, SEQNO_MAX):
        for limit in (0, 1, 2, 9, 10, 11, SEQNO_MAX):
            expected = _entries(start, min(10, start + limit))
            assert log.scan(SeqNo(start), limit) == expected, (start, limit)


def check_scan_after_truncate(open_consensus: OpenConsensus) -> None:
    """Scan: "the first one returned may be later than start; there is never a gap after it"."""
    log = open_consensus()
    _fill(log, 10)
    assert log.truncate(SeqNo(4)) == 4
    assert log.scan(SeqNo(0), 3) == _entries(4, 7)
    assert log.scan(SeqNo(3), 100) == _entries(4, 10)
    assert log.scan(SeqNo(6), 2) == _entries(6, 8)


def check_truncate_beyond_head_is_refused(open_consensus: OpenConsensus) -> None:
    """Truncate: "at most head"."""
    log = open_consensus()
    _fill(log, 3)
    for beyond in (3, 4, SEQNO_MAX):
        _assert_refused(lambda b=beyond: log.truncate(SeqNo(b)))  # type: ignore[misc]
    assert log.scan(SeqNo(0), 10) == _entries(0, 3)


def check_truncate_is_idempotent(open_consensus: OpenConsensus) -> None:
    """Truncate: "return how many"; nothing left to delete is 0, not an error."""
    log, other = open_consensus(), open_consensus()
    _fill(log, 6)
    assert log.truncate(SeqNo(0)) == 0
    assert log.truncate(SeqNo(3)) == 3
    assert other.truncate(SeqNo(3)) == 0
    assert other.truncate(SeqNo(1)) == 0, "an earlier bound is fine too"
    assert log.truncate(SeqNo(5)) == 2
    assert log.scan(SeqNo(0), 10) == _entries(5, 6)


def check_head_survives_truncation(open_consensus: OpenConsensus) -> None:
    """Truncate: "the head stays"; also after everything was closed and opened again."""
    log = open_consensus()
    _fill(log, 5)
    assert log.truncate(SeqNo(4)) == 4
    assert log.head() == 4
    log.close()
    again = open_consensus()
    assert again.head() == 4
    assert again.scan(SeqNo(0), 10) == _entries(4, 5)
    assert again.append(SeqNo(0), b"x") == LostRace(SeqNo(4)), "the log does not begin anew"
    assert again.append(SeqNo(4), b"x") == LostRace(SeqNo(4))
    assert again.append(SeqNo(5), b"entry 5") == Committed()
    assert again.truncate(SeqNo(5)) == 1
    assert again.scan(SeqNo(0), 10) == _entries(5, 6)


def check_truncation_beside_appends_and_scans(open_consensus: OpenConsensus) -> None:
    """A truncation at the same time disturbs no append and opens no gap in a scan."""
    writer, truncator, reader = open_consensus(), open_consensus(), open_consensus()
    writer.append(SeqNo(0), b"x")
    done = Event()

    def truncate() -> None:
        while not done.is_set():
            head = truncator.head()
            assert head is not None
            truncator.truncate(head)

    def scan() -> None:
        while not done.is_set():
            seqnos = [entry.seqno for entry in reader.scan(SeqNo(0), 1_000)]
            assert seqnos, "the head is always there"
            assert all(b == a + 1 for a, b in pairwise(seqnos)), seqnos

    with ThreadPoolExecutor(2) as pool:
        beside = [pool.submit(truncate), pool.submit(scan)]
        try:
            for number in range(1, 60):
                assert writer.append(SeqNo(number), b"x") == Committed()
        finally:
            done.set()
        for future in beside:
            future.result()
    assert writer.head() == 59


def check_arguments_are_validated(open_consensus: OpenConsensus) -> None:
    """What is not a sequence number or a limit is InvalidUsage, and nothing happens."""
    log = open_consensus()
    _fill(log, 2)
    for wrong in (-1, SEQNO_MAX + 1):
        _assert_refused(lambda w=wrong: log.append(SeqNo(w), b""))  # type: ignore[misc]
        _assert_refused(lambda w=wrong: log.scan(SeqNo(w), 1))  # type: ignore[misc]
        _assert_refused(lambda w=wrong: log.scan(SeqNo(0), w))  # type: ignore[misc]
        _assert_refused(lambda w=wrong: log.truncate(SeqNo(w)))  # type: ignore[misc]
    assert log.scan(SeqNo(0), 10) == _entries(0, 2)


def check_reopening_sees_everything(open_consensus: OpenConsensus) -> None:
    """What a closed log has committed, the next one finds."""
    log = open_consensus()
    _fill(log, 3)
    log.close()
    again = open_consensus()
    assert again.head() == 2
    assert again.scan(SeqNo(0), 10) == _entries(0, 3)
    again.close()


CONSENSUS_CHECKS: Final[tuple[Callable[[OpenConsensus], None], ...]] = (
    check_empty_log,
    check_first_is_zero,
    check_append_is_head_plus_one,
    check_content_is_kept,
    check_race_has_one_winner_per_seqno,
    check_race_for_the_next_seqno,
    check_head_is_linearizable,
    check_scan_limits,
    check_scan_after_truncate,
    check_truncate_beyond_head_is_refused,
    check_truncate_is_idempotent,
    check_head_survives_truncation,
    check_truncation_beside_appends_and_scans,
    check_arguments_are_validated,
    check_reopening_sees_everything,
)


def _fill(log: Consensus, count: int) -> None:
    for number in range(count):
        assert log.append(SeqNo(number), b"entry %d" % number) == Committed()


def _entries(start: int, stop: int) -> tuple[LogEntry, ...]:
    return tuple(LogEntry(SeqNo(n), b"entry %d" % n) for n in range(start, stop))


def _assert_refused(call: Callable[[], object]) -> None:
    try:
        returned = call()
    except InvalidUsage:
        return
    raise AssertionError(f"expected InvalidUsage, got {returned!r}")
