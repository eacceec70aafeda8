"""What the four kinds of bindings deliver: standard, REDUCE, delta updates, and both.

Through the whole runtime into SQLite; the judge is a sum over the history in plain Python.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.collection.collections import Collections
from headwater.collection.schema import Column as SqlColumn
from headwater.collection.schema import arrow_schema
from headwater.collection.types import SqlType, by_spark
from headwater.materialize import delivery
from headwater.materialize.changes import NotUnique
from headwater.materialize.definition import (
    ROWS,
    Binding,
    CannotReduce,
    CannotSum,
    Definition,
    Endpoint,
    NothingToChoose,
    delivered_schema,
)
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.key_range import KeyRange
from headwater.materialize.options import InvalidOption, read_binding_settings
from headwater.materialize.pace import Tuning
from headwater.materialize.protocol.messages import LoadMany, Message
from headwater.materialize.reduced import FewerThanNone
from headwater.materialize.reduction.strategy import CannotRetract, UnknownStrategy
from headwater.materialize.runtime import Session
from headwater.materialize.status import Status
from headwater.materialize.transport.in_process import InProcess
from headwater.materialize.tuples import pack, unpack
from headwater.persist.client import Client, open_location
from headwater.persist.evolution import updates_schema
from tests.seeds import seeds

pytestmark = pytest.mark.usefixtures("sqlite_without_fsync")

SCHEMA = pa.schema(
    [
        pa.field("k", pa.string(), nullable=False),
        pa.field("n", pa.int32()),
        pa.field("d", pa.decimal128(10, 2)),
        pa.field("l", pa.list_(pa.int64())),
    ]
)
Row = tuple[str, int | None, Decimal | None, list[int] | None]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path / "data") as opened:
        yield opened


class Story:
    """A collection, and a materialization of it that is run by hand."""

    def __init__(self, client: Client, directory: Path, **options: Any) -> None:
        self.client = client
        self.path = directory / "e.db"
        self.write, read = client.create_or_load("c", SCHEMA)
        self.time = 0
        hard_delete = options.pop("hard_delete", True)
        binding = Binding("c", read.id, "target", ("k",), **options)
        self.read = Collections(client).acquire_read(read.id)
        endpoint = Endpoint("sqlite", {"path": str(self.path)})
        texts = (self.read.to_text(),)
        self.definition = Definition("m", "i", endpoint, (binding,), texts, hard_delete)
        self.session: Session | None = None
        self.status = Status()
        self.asked: list[Any] = []
        """The keys that were loaded, or asked for in vain."""

    def change(self, *updates: tuple[Row, int]) -> None:
        """Make some changes at one time."""
        self.time += 1
        columns: dict[str, list[Any]] = {
            name: [row[at] for row, _ in updates] for at, name in enumerate(SCHEMA.names)
        }
        columns |= {"__time": [self.time] * len(updates), "__diff": [d for _, d in updates]}
        table = pa.table(columns, schema=updates_schema(SCHEMA))
        self.write.compare_and_append(table, self.write.upper, self.time + 1).result()

    def deliver(self) -> Status:
        """Deliver what is there, in the session at hand, or a new one."""
        if self.session is None:
            stream = InProcess(SqliteDriver(), self._watch)
            full = KeyRange.full()
            self.session = Session(self.client, self.definition, (self.read,), full, stream)
        target = self.session.feed.wait(0)
        if target is not None:
            self.status = self.session.deliver(target, self.status)
        return self.status

    def _watch(self, message: Message) -> None:
        if isinstance(message, LoadMany):
            self.asked += [unpack(key)[0] for key in message.keys_packed.to_pylist()]

    def end(self) -> None:
        if self.session is not None:
            self.session.end()
            self.session.close()
            self.session = None

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        names = ", ".join(f'"{column}"' for column in columns)
        with closing(sqlite3.connect(self.path)) as db:
            return sorted(db.execute(f"SELECT {names} FROM target").fetchall(), key=repr)


def _row(k: str, n: int | None = None, d: str | None = None, l: list[int] | None = None) -> Row:  # noqa: E741
    return k, n, None if d is None else Decimal(d), l


# ---- sums ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta_updates", [False, True])
def test_the_example_of_the_protocols_document(
    client: Client, tmp_path: Path, *, delta_updates: bool
) -> None:
    """-1, 3, 2 and then 6, -7, -1: in full 4 and then 2, as deltas 4 and then -2."""
    story = Story(client, tmp_path, reduce=(("n", "sum"),), delta_updates=delta_updates)
    for n in (-1, 3, 2):
        story.change((_row("c", n), 1))
    story.deliver()
    assert story.rows("k", "n") == [("c", 4)]
    for n in (6, -7, -1):
        story.change((_row("c", n), 1))
    story.deliver()
    assert story.rows("k", "n") == ([("c", -2), ("c", 4)] if delta_updates else [("c", 2)])
    story.end()


@pytest.mark.parametrize("seed", seeds(3, 60))
@pytest.mark.parametrize("hard_delete", [True, False])
def test_sums_follow_every_insertion_and_deletion(
    client: Client, tmp_path: Path, seed: int, *, hard_delete: bool
) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    story = Story(client, tmp_path, reduce=(("n", "sum"), ("d", "sum")), hard_delete=hard_delete)
    there: Counter[Row] = Counter()
    for _ in range(25):
        changed: list[tuple[Row, int]] = []
        for _ in range(random.randint(0, 4)):
            chosen = random.choice(sorted(there, key=repr)) if there else None
            if chosen is not None and random.random() < 0.5:
                changed.append((chosen, -1))
            else:
                n, d = random.choice([None, -3, 0, 7]), random.choice([None, "0.10", "-2.05"])
                chosen = _row(random.choice("abc"), n, d)
                changed.append((chosen, 1))
            there[chosen] += changed[-1][1]
            there = +there
        story.change(*changed)
        if random.random() < 0.3:
            story.end()
        if random.random() < 0.6:
            story.deliver()
            _judge(story, there, hard_delete=hard_delete)
    story.deliver()
    _judge(story, there, hard_delete=hard_delete)
    story.end()


def _judge(story: Story, there: Counter[Row], *, hard_delete: bool) -> None:
    expected = {}
    for key in {row[0] for row in there}:
        mine = [(row, count) for row, count in there.items() if row[0] == key]
        expected[key] = (
            sum((row[1] or 0) * count for row, count in mine),
            sum((row[2] or Decimal(0)) * count for row, count in mine),
            sum(count for _, count in mine),
        )
    columns = ("k", "n", "d", ROWS) if hard_delete else ("k", "n", "d", ROWS, "_meta/op")
    rows = story.rows(*columns)
    live = [row for row in rows if hard_delete or row[4] != "d"]
    assert {k: (n, Decimal(d), count) for k, n, d, count, *_ in live} == expected
    # A key that is gone stays only as a mark, and its values are those of no rows.
    gone = [row for row in rows if not hard_delete and row[4] == "d"]
    assert all(not n and not Decimal(d) and not count for _, n, d, count, _ in gone)


def test_only_keys_that_can_be_there_are_loaded(client: Client, tmp_path: Path) -> None:
    story = Story(client, tmp_path, reduce=(("n", "sum"),))
    story.change((_row("a", 1), 1), (_row("b", 1), 1))
    story.deliver()
    story.change((_row("c", 1), 1), (_row("d", 1), 1))
    assert story.deliver().rows_loaded == 0
    assert not story.asked  # Nothing was ever stored; then all were above the greatest key.
    story.change((_row("b", 1), 1), (_row("aa", 1), 1), (_row("e", 1), 1))
    assert story.deliver().rows_loaded == 1
    assert story.asked == ["aa", "b"]
    story.end()
    story.change((_row("d", 5), 1), (_row("f", 5), 1))
    assert story.deliver().rows_loaded == 2
    assert story.asked[2:] == ["d"]  # The greatest key is remembered.
    assert story.rows("k", "n") == [
        ("a", 1), ("aa", 1), ("b", 2), ("c", 1), ("d", 6), ("e", 1), ("f", 5)
    ]  # fmt: skip
    story.end()


def test_rows_that_somebody_else_changed_are_not_guessed_at(client: Client, tmp_path: Path) -> None:
    story = Story(client, tmp_path, reduce=(("n", "sum"),))
    story.change((_row("a", 1), 1))
    story.deliver()
    with closing(sqlite3.connect(story.path)) as db:
        db.execute("DELETE FROM target")
        db.commit()
    story.change((_row("a", 1), -1))
    with pytest.raises(FewerThanNone, match=r"\('a',\)"):
        story.deliver()


@pytest.mark.parametrize("options", [{}, {"reduce": (("n", "sum"),)}, {"delta_updates": True}])
def test_a_large_transaction_is_stored_in_pieces(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(delivery, "ROWS_AT_ONCE", 3)
    story = Story(client, tmp_path, **options)
    story.change(*((_row(f"k{n}", n), 1) for n in range(10)))
    story.deliver()
    story.change(
        *((_row(f"k{n}", n), -1) for n in range(8)), *((_row(f"k{n}", -n), 1) for n in range(5))
    )
    assert story.deliver().transactions == 2
    there = [(f"k{n}", -n) for n in range(5)] + [(f"k{n}", n) for n in (8, 9)]
    if options.get("delta_updates"):
        summed: Counter[Any] = Counter()
        for k, n, op in story.rows("k", "n", "_meta/op"):
            summed[(k, n)] += {"c": 1, "d": -1}[op]
        assert sorted(+summed) == sorted(there)
    else:
        assert story.rows("k", "n") == sorted(there)
    story.end()


# ---- other strategies ----------------------------------------------------------------------------


def test_the_last_write_wins_where_the_key_has_one_row(client: Client, tmp_path: Path) -> None:
    story = Story(client, tmp_path, reduce=(("n", "lastWriteWins"), ("d", "sum")))
    story.change((_row("a", 1, "1.00"), 1), (_row("b", 7), 1))
    story.deliver()
    story.change((_row("a", 1, "1.00"), -1), (_row("a", 2, "5.00"), 1))
    story.change((_row("a", 2, "5.00"), -1), (_row("a", 3, "6.00"), 1), (_row("b", 7), -1))
    story.deliver()
    assert story.rows("k", "n", "d") == [("a", 3, "6.00")]
    story.change((_row("a", 4), 1))
    with pytest.raises(NotUnique, match=r"\('a',\)"):
        story.deliver()


@pytest.mark.parametrize("hard_delete", [True, False])
def test_nothing_is_loaded_where_the_last_write_wins_in_all_columns(
    client: Client, tmp_path: Path, *, hard_delete: bool
) -> None:
    story = Story(client, tmp_path, reduce=(("n", "lastWriteWins"),), hard_delete=hard_delete)
    story.change((_row("a", 1, "1.00"), 1), (_row("b", 7), 1))
    story.deliver()
    story.change((_row("a", 1, "1.00"), -1), (_row("a", 1, "5.00"), 1), (_row("b", 7), -1))
    assert story.deliver().rows_stored == 2, "of what is not delivered a change is none"
    gone = [] if hard_delete else [("b", 7, 0)]
    assert story.rows("k", "n", "_headwater_rows") == [("a", 1, 1), *gone]
    story.change((_row("a", 1, "5.00"), -1), (_row("a", 2), 1), (_row("b", 8), 1))
    story.deliver()
    assert story.rows("k", "n", "_headwater_rows") == [("a", 2, 1), ("b", 8, 1)]
    assert not story.asked
    story.change((_row("a", 4), 1))
    with pytest.raises(HeadwaterError, match="'a'"):
        story.deliver()


def test_what_cannot_absorb_a_deletion_is_refused_with_the_remedy(
    client: Client, tmp_path: Path
) -> None:
    for strategy, refusal, text in (
        ("minimize", CannotRetract, "compute it in a view"),
        ("smallest", UnknownStrategy, "names no strategy"),
    ):
        story = Story(client, tmp_path, reduce=(("n", strategy),))
        with pytest.raises(refusal, match=text):
            story.deliver()
    with pytest.raises(CannotSum, match="only numbers"):
        Story(client, tmp_path, reduce=(("l", "sum"),)).deliver()


@pytest.mark.parametrize("strategy", ["append", "merge", "set", "jsonSchemaMerge"])
def test_what_is_no_array_or_struct_is_refused_where_these_are_put_together(strategy: str) -> None:
    """A jsonb is a text to us: no row of it could ever have been reduced."""
    jsonb = arrow_schema([SqlColumn("k", by_spark("string")), SqlColumn("j", SqlType("jsonb"))])
    binding = Binding("c", GlobalId(1), "target", ("k",), reduce=(("j", strategy),))
    with pytest.raises(CannotRetract):
        delivered_schema(binding, jsonb, hard_delete=True)
    promised = msgspec.structs.replace(binding, append_only=True)
    with pytest.raises(CannotReduce, match=rf"'j' is jsonb, and {strategy} .* make one of it in"):
        delivered_schema(promised, jsonb, hard_delete=True)
    struct = pa.schema(
        [jsonb.field("k"), pa.field("j", pa.struct([("add", pa.list_(pa.int64()))]))]
    )
    if strategy != "append":
        assert delivered_schema(promised, struct, hard_delete=True).names[:2] == ["k", "j"]


def test_append_only_collections_may_use_every_strategy(client: Client, tmp_path: Path) -> None:
    reduce = (("n", "minimize"), ("l", "append"), ("d", "firstWriteWins"))
    story = Story(client, tmp_path, reduce=reduce, append_only=True)
    story.change((_row("a", 5, "1.00", [1]), 2))  # The same row twice.
    story.deliver()
    story.change((_row("a", 3, "2.00", [2]), 1))
    story.change((_row("a", 4, "3.00", [3]), 1))
    story.deliver()
    assert story.rows("k", "n", "l", "d") == [("a", 3, "[1,1,2,3]", "1.00")]
    story.change((_row("a", 4, "3.00", [3]), -1))
    with pytest.raises(CannotRetract, match=r"\('a',\)"):
        story.deliver()


# ---- delta updates -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(3, 60))
def test_deltas_add_up_to_the_view(client: Client, tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    story = Story(client, tmp_path, delta_updates=True)
    there: Counter[Row] = Counter()
    for _ in range(15):
        changed: list[tuple[Row, int]] = []
        for _ in range(random.randint(0, 4)):
            row = _row(random.choice("ab"), random.randint(0, 1))
            diff = random.choice([1, 2, -1]) if there[_hashable(row)] else 1
            there[_hashable(row)] += diff
            changed.append((row, diff))
        story.change(*changed)
        if random.random() < 0.5:
            story.deliver()
        if random.random() < 0.2:
            story.end()
    story.deliver()
    story.end()
    summed: Counter[Any] = Counter()
    for k, n, op in story.rows("k", "n", "_meta/op"):
        summed[(k, n)] += {"c": 1, "d": -1}[op]
    assert +summed == +Counter({(row[0], row[1]): count for row, count in there.items()})


def _hashable(row: Row) -> Row:
    return (*row[:3], None)


def test_every_row_that_goes_is_a_document_marked_so(client: Client, tmp_path: Path) -> None:
    story = Story(client, tmp_path, delta_updates=True)
    story.change((_row("a", 1), 1), (_row("a", 2), 2))
    story.deliver()
    story.change((_row("a", 1), -1), (_row("a", 3), 1))
    story.change((_row("b", 9), 1))
    story.change((_row("b", 9), -1))  # Within one transaction: nothing happened.
    story.deliver()
    assert story.rows("k", "n", "_meta/op") == [
        ("a", 1, "c"), ("a", 1, "d"), ("a", 2, "c"), ("a", 2, "c"), ("a", 3, "c")
    ]  # fmt: skip
    story.end()


# ---- duplicate keys ------------------------------------------------------------------------------


def _in_order(row: Row) -> bytes:
    return pack((row[0], row[1], None if row[2] is None else str(row[2]), None))


@pytest.mark.parametrize("policy", ["first", "last"])
@pytest.mark.parametrize("seed", seeds(2, 60))
def test_of_several_rows_of_a_key_one_is_delivered(
    client: Client, tmp_path: Path, policy: str, seed: int
) -> None:
    """Which one depends on the rows that are there, and not on how they came and went."""
    print(f"seed {seed}")
    random = Random(seed)
    story = Story(client, tmp_path, duplicates=policy, hard_delete=bool(seed % 2))
    if seed % 3:
        story.definition = msgspec.structs.replace(story.definition, tuning=Tuning(spill_bytes=50))
    there: Counter[Row] = Counter()
    for _ in range(12):
        changed: list[tuple[Row, int]] = []
        for _ in range(random.randint(0, 4)):
            number = random.choice([None, -1, 0, 300])
            row = _row(random.choice("abc"), number, random.choice([None, "1.50"]))
            diff = random.choice([1, -there[row]]) if there[row] else random.choice([1, 2])
            there[row] += diff
            changed.append((row, diff))
        story.change(*changed)
        if random.random() < 0.5:
            continue
        while (story.deliver().reached or 0) <= story.time:
            pass
        _judge_chosen(story, there, policy)
        if random.random() < 0.3:
            story.end()
    story.end()


def _judge_chosen(story: Story, there: Counter[Row], policy: str) -> None:
    choose = {"first": min, "last": max}[policy]
    expected = []
    for key in {row[0] for row in +there}:
        k, n, d, _ = choose((row for row in +there if row[0] == key), key=_in_order)
        expected.append((k, n, None if d is None else str(d)))
    columns = ("k", "n", "d") if story.definition.hard_delete else ("k", "n", "d", "_meta/op")
    live = [row[:3] for row in story.rows(*columns) if row[3:] != ("d",)]
    assert live == sorted(expected, key=repr)


@pytest.mark.parametrize("options", [{"delta_updates": True}, {"reduce": (("n", "sum"),)}])
def test_nothing_is_chosen_where_all_rows_of_a_key_are_delivered(options: dict[str, Any]) -> None:
    binding = Binding("c", GlobalId(1), "target", ("k",), duplicates="first", **options)
    with pytest.raises(NothingToChoose, match="DUPLICATE_KEYS"):
        delivered_schema(binding, SCHEMA, hard_delete=True)


def test_policies_are_read() -> None:
    assert read_binding_settings({"DUPLICATE_KEYS": "Last"}) == {"duplicates": "last"}
    assert read_binding_settings({"DUPLICATE_KEYS": "error"}) == {"duplicates": ""}
    with pytest.raises(InvalidOption, match="neither 'error' nor 'first' nor 'last'"):
        read_binding_settings({"DUPLICATE_KEYS": "any"})
