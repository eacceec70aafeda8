"""A range of an upsert: the same as row by row, however it is cut, and wherever it is put aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from headwater.base.errors import InvalidUsage
from headwater.collection.probe import PROBE_INDEX
from headwater.persist.batch import Segment
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.evolution import TIME
from headwater.storage import told as told_module
from headwater.storage.dead_letters import Policy
from headwater.storage.decode import Included
from headwater.storage.envelope import Changes, Upsert, key_text
from headwater.storage.format import Json, Row
from headwater.storage.source import MESSAGE, PLACE
from headwater.storage.told import told
from headwater.storage.upsert_range import RowsOf, UpsertRange, put_aside

SEED = 20261116
V = pa.schema([pa.field("v", pa.int64(), nullable=False)])
K = pa.schema([pa.field("k", pa.int64(), nullable=False)])
F = pa.schema([pa.field("k", pa.float64())])
UPSERT = Upsert(Json(V), ("k",), Json(K))


class Sent(NamedTuple):
    """A message, and when it is."""

    time: int
    key: bytes | None
    value: bytes | None
    offset: int
    partition: str = "p"


def sent(*found: tuple[int, bytes | None, bytes | None]) -> list[Sent]:
    return [Sent(*each, offset) for offset, each in enumerate(found)]


def stamped(found: Sequence[Sent]) -> pa.Table:
    schema = pa.schema([*PLACE, *MESSAGE, pa.field(TIME, pa.int64(), nullable=False)])
    rows = [
        {
            "__partition": each.partition,
            "__offset": each.offset,
            "key": each.key,
            "value": each.value,
            TIME: each.time,
        }
        for each in found
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def asking(envelope: Upsert, before: Mapping[Row, Row]) -> RowsOf:
    """An output that has these rows."""

    def rows_of(keys: Sequence[pa.Array]) -> pa.Table:
        asked = list(zip(*(column.to_pylist() for column in keys), strict=True))
        assert len(set(asked)) == len(asked), "a key is asked for once"
        there = [(place, before[key]) for place, key in enumerate(asked) if key in before]
        rows = [
            {PROBE_INDEX: place, **dict(zip(envelope.schema.names, row, strict=True))}
            for place, row in there
        ]
        fields = [column.with_nullable(True) for column in envelope.schema]
        return pa.Table.from_pylist(
            rows, schema=pa.schema([pa.field(PROBE_INDEX, pa.int64()), *fields])
        )

    return rows_of


Found = tuple[Counter[str], Counter[str], list[int]]


def summary(changes: Sequence[Changes]) -> Found:
    """Return updates, errors, and the offsets of dead letters."""
    updates, errors, letters = Counter[str](), Counter[str](), list[int]()
    for each in changes:
        for row in each.updates.to_pylist():
            data = ",".join(str(v) for name, v in row.items() if not name.startswith("__"))
            updates[f"{data}@{row['__time']}"] += row["__diff"]
        for row in each.errors.to_pylist():
            errors[f"{row['context']}@{row['__time']}"] += row["__diff"]
        letters += each.letters.column("offset").to_pylist()
    assert 0 not in updates.values(), "what adds up to nothing is no change"
    return updates, Counter({k: n for k, n in errors.items() if n}), sorted(letters)


def fold(
    found: Sequence[Sent],
    before: Mapping[Row, Row] | None = None,
    errors: Mapping[str, str] | None = None,
    envelope: Upsert = UPSERT,
) -> Any:
    range_ = UpsertRange(envelope, "o", asking(envelope, before or {}), errors or {})
    updates, failed, letters = summary([range_.add(stamped(found)), *range_.rest()])
    told_ = [f"{row}:{diff:+}" for row, diff in updates.items()]
    return sorted(told_), sorted(f"{row}:{diff:+}" for row, diff in failed.items()), letters


def k(n: int) -> bytes:
    return b'{"k": %d}' % n


def v(n: int) -> bytes:
    return b'{"v": %d}' % n


def test_a_value_replaces_what_the_output_had() -> None:
    had = {(1,): (1, 1)}
    assert fold(sent((5, k(1), v(2))), had) == (["1,1@5:-1", "1,2@5:+1"], [], [])
    assert fold(sent((5, k(1), v(1))), had) == ([], [], [])
    assert fold(sent((5, k(1), None)), had) == (["1,1@5:-1"], [], [])
    assert fold(sent((5, k(1), None))) == ([], [], [])


def test_within_one_time_the_last_counts_and_over_times_each() -> None:
    found = sent((5, k(1), v(1)), (5, k(1), v(2)), (6, k(1), None), (7, k(1), v(2)))
    assert fold(found) == (["1,2@5:+1", "1,2@6:-1", "1,2@7:+1"], [], [])


def test_a_value_that_cannot_be_decoded_is_retracted_by_the_next() -> None:
    found = fold(sent((5, k(1), b"?"), (6, k(1), v(3))), {(1,): (1, 1)})
    assert found == (["1,1@5:-1", "1,3@6:+1"], ["[1]@5:+1", "[1]@6:-1"], [0])
    assert fold(sent((8, k(1), None)), errors={"[1]": "before"})[1] == ["[1]@8:-1"]
    skipping = Upsert(Json(V), ("k",), Json(K), Policy.SKIP)
    assert fold(sent((5, k(1), b"?")), {(1,): (1, 1)}, envelope=skipping) == (
        ["1,1@5:-1"],
        [],
        [0],
    )


def test_a_message_without_a_usable_key_stays_an_error() -> None:
    found = fold(sent((5, None, v(1)), (5, b"?", v(1)), (5, k(1), v(1))))
    assert found == (["1,1@5:+1"], ["None@5:+2"], [0, 1])


def test_the_key_may_be_in_the_value() -> None:
    envelope = Upsert(Json(pa.schema([*V, *K])), ("k",), included=(Included("offset", "at"),))
    found = fold(sent((5, None, b'{"k": 1, "v": 2}'), (5, None, None)), envelope=envelope)
    assert found == (["2,1,0@5:+1"], ["None@5:+1"], [1])
    with pytest.raises(InvalidUsage, match="the key of an upsert is among"):
        Upsert(Json(V), ("k",))


def test_keys_are_equal_as_in_sql() -> None:
    envelope = Upsert(Json(V), ("k",), Json(F))
    found = sent((5, b'{"k": 0.0}', v(1)), (5, b'{"k": -0.0}', v(2)), (5, b"{}", v(3)))
    assert fold(found, envelope=envelope)[0] == ["-0.0,2@5:+1", "None,3@5:+1"]


# ---- cut and put aside -----------------------------------------------------------------------


def by_model(found: Sequence[Sent], before: Mapping[Row, Row], errors: Mapping[str, str]) -> Found:
    """Row by row: of each key at each time the newest, and what that replaces."""
    told_: dict[int, dict[int, tuple[tuple[int, str], Any]]] = {}
    updates, failed, letters = Counter[str](), Counter[str](), list[int]()
    for each in found:
        assert each.key is not None
        key = msgspec.json.decode(each.key)["k"]
        what: Any = None
        if each.value == b"?":
            letters.append(each.offset)
            what = "bad"
        elif each.value is not None:
            what = msgspec.json.decode(each.value)["v"]
        place = (each.offset, each.partition)
        values = told_.setdefault(key, {})
        if each.time not in values or values[each.time][0] < place:
            values[each.time] = (place, what)
    for key, values in told_.items():
        now: Any = before[key,][1] if (key,) in before else None
        now = "bad" if key_text((key,)) in errors else now
        for time, (_, what) in sorted(values.items()):
            for value, diff in ((now, -1), (what, 1)):
                if value == "bad":
                    failed[f"[{key}]@{time}"] += diff
                elif value is not None:
                    updates[f"{key},{value}@{time}"] += diff
            now = what
    updates, failed = (Counter({r: n for r, n in c.items() if n}) for c in (updates, failed))
    return updates, failed, sorted(letters)


@pytest.mark.parametrize("collide", [False, True], ids=["hashed", "colliding"])
def test_whatever_is_cut_and_in_whatever_order_it_comes(
    collide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of partitions side by side, put aside here or by others: always as row by row."""
    print(f"seed {SEED}")
    random = Random(SEED)
    if collide:
        monkeypatch.setattr(told_module, "key_hash", lambda c: c[0].combine_chunks().to_numpy() % 2)
    for _ in range(8):
        keys = random.choice([3, 40])
        found = [
            Sent(
                random.randrange(5, 8),
                k(random.randrange(keys)),
                random.choice([v(random.randrange(4)), v(random.randrange(4)), None, b"?"]),
                offset,
                random.choice(["2", "10"]),
            )
            for offset in (random.randrange(300) for _ in range(random.randrange(1, 200)))
        ]
        found = list({(each.partition, each.offset): each for each in found}.values())
        before = {(n,): (n, n % 4) for n in range(keys) if random.random() < 0.3}
        errors = {key_text((n,)): "was" for n in range(keys) if (n,) not in before and not n % 3}
        range_ = UpsertRange(UPSERT, "o", asking(UPSERT, before), errors, at_once=20)
        changes, blob = [], MemoryBlob()
        left = list(found)
        while left:
            batch = stamped(left[: (size := random.randrange(1, 30))])
            del left[:size]
            if random.random() < 0.5:
                changes.append(range_.add(batch))
            else:
                other = told(UPSERT, "o", batch)
                changes.append(other.refused)
                data = put_aside(UPSERT, [other.table])
                blob.create(key := f"told/{len(changes)}/{random.random()}", data)
                range_.take(blob, [Segment(key, 0, len(data), 0)])
        assert summary([*changes, *range_.rest()]) == by_model(found, before, errors)


def test_what_is_put_aside_is_not_held() -> None:
    range_ = UpsertRange(UPSERT, "o", asking(UPSERT, {}), {}, at_once=1_000)
    for first in range(0, 6_000, 500):
        range_.add(stamped([Sent(5, k(n), v(n), n) for n in range(first, first + 500)]))
    assert range_._waiting == []
    changes = list(range_.rest())
    assert sum(each.updates.num_rows for each in changes) == 6_000
    assert max(each.updates.num_rows for each in changes) < 2_000
