"""The Python API where no Spark is needed: tables, times, subscriptions, and who may write."""

from __future__ import annotations

import doctest
import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pandas as pd
import pyarrow as pa
import pytest

import headwater
from headwater.adapter.errors import (
    AdapterError,
    NotNullViolation,
    TimestampNotReadable,
    UniqueViolation,
    UnknownRelation,
    WrongKind,
)
from headwater.api import answer, database, evaluator, values
from headwater.api.engine import NothingHere, ReadOnlyDatabase
from headwater.api.values import UnfitRows
from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.persist.errors import AlreadyLocked


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("location") / "data"


@pytest.fixture(scope="module")
def db(location: Path) -> Iterator[headwater.Database]:
    with headwater.open(location, writable=True) as opened:
        yield opened
        assert not opened._engine.spark.is_running, "none of this needs Spark"


@pytest.fixture(scope="module")
def reader(db: headwater.Database, location: Path) -> Iterator[headwater.Database]:
    with headwater.open(location) as opened:
        yield opened
        assert not opened._engine.spark.is_running


@pytest.fixture
def orders(db: headwater.Database) -> Iterator[headwater.Relation]:
    columns = {"id": "bigint", "region": "text NOT NULL", "amount": "numeric(10,2) DEFAULT 1"}
    yield db.create_table("orders", columns, key=["id"])
    db.drop("orders")


def test_importing_it_is_cheap() -> None:
    program = (
        "import sys, headwater; assert headwater.__version__; "
        "heavy = {'pyspark', 'pyarrow', 'sqlglot', 'pandas'} & set(sys.modules); "
        "assert not heavy, heavy; assert 'open' in dir(headwater)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        _ = headwater.nothing_of_ours


@pytest.mark.parametrize("module", [answer, database, evaluator, values])
def test_examples(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.failed == 0
    assert found.attempted


def test_rows_of_every_form(db: headwater.Database, orders: headwater.Relation) -> None:
    assert orders.insert([{"id": 1, "region": "eu"}]) == 1
    assert orders.insert(pa.table({"id": [2], "amount": ["2.50"], "region": ["us"]})) == 1
    assert orders.insert(pa.record_batch({"id": [3], "region": ["eu"], "amount": [3]})) == 1
    assert orders.insert(pd.DataFrame({"id": [4], "region": ["us"], "amount": [4.5]})) == 1
    assert orders.insert([]) == 0
    rows = [
        (1, "eu", Decimal("1.00")),
        (2, "us", Decimal("2.50")),
        (3, "eu", Decimal("3.00")),
        (4, "us", Decimal("4.50")),
    ]
    assert sorted(orders.fetchall()) == rows
    assert sorted(db.sql("SELECT * FROM orders").fetchall()) == rows
    assert sorted(db.sql("SELECT region AS r FROM orders")) == [("eu",), ("eu",), ("us",), ("us",)]
    assert db.sql("SELECT id, region FROM orders WHERE id = $1", (3,)).fetchone() == (3, "eu")
    assert sorted(orders.to_pandas()["id"]) == [1, 2, 3, 4]
    assert orders.to_arrow().schema.field("amount").type == pa.decimal128(10, 2)


def test_rows_with_a_uuid_and_json_are_read_as_in_a_statement(db: headwater.Database) -> None:
    db.sql("CREATE TABLE u (id uuid PRIMARY KEY, v jsonb)")
    one, two = UUID(int=10), UUID(int=11)
    db.table("u").insert([{"id": one, "v": {"b": 1.0, "a": None}}])
    db.table("u").insert(pa.table({"id": [str(two).upper()], "v": ['{"b":1, "a":null}']}))
    same = '{"a": null, "b": 1}'
    assert sorted(db.table("u").fetchall()) == [(str(one), same), (str(two), same)]
    with pytest.raises(HeadwaterError, match="uuid"):
        db.table("u").insert([{"id": "no uuid"}])
    db.sql("DROP TABLE u")  # The other tests of this file share the location.


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([{"id": 1, "region": "a"}, {"id": 1, "region": "b"}], UniqueViolation),
        ([{"id": 1, "region": None}], NotNullViolation),
        ([{"id": 1, "size": 3}], UnfitRows),
        (pa.table({"id": ["x"], "region": ["a"]}), UnfitRows),
    ],
)
def test_rows_that_do_not_fit_change_nothing(
    orders: headwater.Relation, rows: Any, error: type[HeadwaterError]
) -> None:
    with pytest.raises(error):
        orders.insert(rows)
    assert orders.fetchall() == []


def test_parameters_are_what_they_are_on_the_wire(db: headwater.Database) -> None:
    types = {
        "i": "int", "n": "numeric", "f": "float8", "b": "boolean", "d": "date",
        "t": "timestamp", "z": "timestamptz", "x": "bytea", "s": "text",
    }  # fmt: skip
    given = (
        -7, Decimal("-1.5"), 0.1, True, date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001 - a timestamp has no zone
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), b"\x00'\xff",
        "it's $1 -- ; text",
    )  # fmt: skip
    table = db.create_table("every", types)
    places = ", ".join(f"${n}" for n in range(1, len(given) + 1))
    db.sql(f"INSERT INTO every VALUES ({places})", given)
    db.sql(f"INSERT INTO every VALUES ({places})", [None] * len(given))
    found = sorted(table.fetchall(), key=lambda row: row[0] is None)
    assert found[0] == given
    assert found[1] == (None,) * len(given)
    db.drop("every")


def test_parameters_that_do_not_fit_their_statement(db: headwater.Database) -> None:
    with pytest.raises(InvalidUsage, match=r"has 2 parameter\(s\), and 1 were given"):
        db.sql("SELECT $1, $2", (1,))
    with pytest.raises(InvalidUsage, match=r"\$1 is a object"):
        db.sql("SELECT $1", (object(),))


def test_every_time_stays_what_it_was(db: headwater.Database, orders: headwater.Relation) -> None:
    before = db.now()
    orders.insert([{"id": 1, "region": "eu", "amount": 5}])
    first = db.now()
    db.sql("UPDATE orders SET amount = 7 WHERE id = 1")
    db.sql("INSERT INTO orders VALUES (2, 'us', 1)")
    last = db.now()
    assert orders.fetchall(as_of=before) == []
    assert orders.fetchall(as_of=first) == [(1, "eu", Decimal(5))]
    assert len(orders.fetchall(as_of=last)) == 2
    changes = orders.updates(first + 1, last + 1).to_pylist()
    assert [(c["mz_diff"], c["id"], c["amount"]) for c in changes] in (
        [(-1, 1, 5), (1, 1, 7), (1, 2, 1)],
        [(1, 1, 7), (-1, 1, 5), (1, 2, 1)],
    )
    assert orders.updates(last, last).num_rows == 0
    assert orders.updates(last, last).schema == orders.updates(first, last + 1).schema
    assert orders.since is not None
    assert orders.upper is not None
    assert orders.since <= before < last < orders.upper
    with pytest.raises(TimestampNotReadable):
        orders.fetchall(as_of=orders.since - 1)


def test_a_transaction_is_all_or_nothing(
    db: headwater.Database, reader: headwater.Database, orders: headwater.Relation
) -> None:
    with db.transaction() as tx:
        tx.sql("INSERT INTO orders VALUES (1, 'eu', 1)")
        tx.insert("orders", [{"id": 2, "region": "us"}])
        assert orders.fetchall() == []
    assert len(orders.fetchall()) == 2
    with pytest.raises(UniqueViolation), db.transaction() as tx:  # noqa: PT012 - what is undone
        tx.sql("DELETE FROM orders WHERE id = 2")
        orders.insert([{"id": 1, "region": "eu"}])
    with reader.transaction() as tx:
        one = tx.sql("SELECT id FROM orders").fetchall()
        orders.insert([{"id": 3, "region": "eu"}])
        assert tx.sql("SELECT id FROM orders").fetchall() == one
    assert len(reader.table("orders").fetchall()) == 3


def test_a_subscription_goes_on_where_it_was(
    db: headwater.Database, orders: headwater.Relation
) -> None:
    orders.insert([{"id": 1, "region": "eu"}])
    seen: list[headwater.Change | headwater.Progress] = []
    with db.subscribe("orders") as changes:
        for each in changes.events():
            seen.append(each)
            if changes.position is not None:
                break
        position = changes.position
    assert isinstance(seen[0], headwater.Progress)
    assert seen[1:] == [
        headwater.Change(seen[1].time, 1, {"id": 1, "region": "eu", "amount": Decimal("1.00")}),
        headwater.Progress(seen[1].time + 1),
    ]
    orders.insert([{"id": 2, "region": "us"}])
    db.sql("DELETE FROM orders WHERE id = 1")
    with orders.subscribe(resume_at=position, up_to=db.now() + 1) as changes:
        assert changes.position == position
        rest = [(each.diff, each.row["id"]) for each in changes]
    assert rest == [(1, 2), (-1, 1)]
    assert db._engine.coordinator.holds.least() is None


def test_a_subscription_is_closed_by_another_thread(
    reader: headwater.Database, db: headwater.Database, orders: headwater.Relation
) -> None:
    seen: list[Any] = []
    changes = reader.subscribe("orders")
    first = threading.Event()

    def follow() -> None:
        for batch in changes.batches():
            seen.extend(batch.column("id").to_pylist())
            first.set()

    thread = threading.Thread(target=follow)
    thread.start()
    orders.insert([{"id": 7, "region": "eu"}])
    assert first.wait(30)
    changes.close()
    changes.close()
    thread.join(30)
    assert not thread.is_alive()
    assert seen == [7]
    assert list(changes) == []
    assert reader._engine.coordinator.holds.least() is None


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO orders VALUES (9, 'x', 1)",
        "UPDATE orders SET amount = 2",
        "DELETE FROM orders",
        "CREATE TABLE other (x int)",
        "CREATE VIEW other AS SELECT id FROM orders",
        "CREATE MATERIALIZED VIEW other AS SELECT id FROM orders",
        "CREATE SUBSCRIPTION other TO orders",
        "DROP TABLE orders",
        "ALTER TABLE orders RENAME TO other",
        "COMMENT ON TABLE orders IS 'mine'",
    ],
)
def test_a_reader_writes_nothing(
    reader: headwater.Database, orders: headwater.Relation, sql: str
) -> None:
    with pytest.raises(ReadOnlyDatabase, match="writable=True"):
        reader.sql(sql)
    assert reader.tables() == ["orders"]


def test_a_reader_writes_nothing_by_its_methods(
    reader: headwater.Database, orders: headwater.Relation
) -> None:
    for write in (
        lambda: reader.insert("orders", [{"id": 1, "region": "x"}]),
        lambda: reader.table("orders").insert([{"id": 1, "region": "x"}]),
        lambda: reader.create_table("other", {"x": "int"}),
        lambda: reader.create_materialized_view("other", lambda table: table("orders")),
        lambda: reader.drop("orders"),
    ):
        with pytest.raises(ReadOnlyDatabase):
            write()


def test_a_reader_leaves_every_byte_as_it_is(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "data", writable=True) as db:
        db.create_table("t", {"k": "bigint"}, key=["k"]).insert([{"k": 1}, {"k": 2}])

    def contents() -> dict[str, str]:
        files = [path for path in sorted((tmp_path / "data").rglob("*")) if path.is_file()]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = contents()
    with headwater.open(tmp_path / "data") as reader:
        assert sorted(reader.table("t").fetchall()) == [(1,), (2,)]
        assert reader.sql("SELECT k FROM t WHERE k = 2").fetchall() == [(2,)]
        with reader.subscribe("t", up_to=reader.now() + 1) as changes:
            assert sorted(change.row["k"] for change in changes) == [1, 2]
    assert contents() == before


def test_who_opens_what(db: headwater.Database, location: Path, tmp_path: Path) -> None:
    with pytest.raises(AlreadyLocked, match="pid"):
        headwater.open(location, writable=True)
    with pytest.raises(NothingHere, match="no directory"):
        headwater.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    with headwater.open(tmp_path / "mine", writable=True) as old:
        old.create_table("t", {"k": "bigint"})
        with headwater.open(tmp_path / "mine", writable=True, take_over=True) as new:
            new.insert("t", [{"k": 1}])
            with pytest.raises(HeadwaterError, match="epoch"):
                old.insert("t", [{"k": 2}])
            assert new.table("t").fetchall() == [(1,)]


def test_what_there_is(db: headwater.Database, orders: headwater.Relation) -> None:
    assert (db.tables(), db.views()) == (["orders"], [])
    assert orders.kind == "table"
    assert orders.key == ("id",)
    assert repr(orders).startswith("<table orders (id int64, region string")
    with pytest.raises(UnknownRelation) as unknown:
        db.table("order")
    assert unknown.value.hint == 'Perhaps you meant "orders".'
    with pytest.raises(WrongKind):
        db.view("orders")
    with pytest.raises(AdapterError, match="SUBSCRIBE"):
        db.sql("SUBSCRIBE TO orders")


def test_a_name_of_any_characters(db: headwater.Database) -> None:
    odd = db.create_table('so "odd", isn\'t it', {"a b": "bigint"})
    odd.insert([{"a b": 1}])
    assert odd.fetchall() == [(1,)]
    assert odd.updates(db.now(), db.now() + 1).column_names == ["mz_timestamp", "mz_diff", "a b"]
    db.drop('so "odd", isn\'t it')


def test_sessions_side_by_side(db: headwater.Database, orders: headwater.Relation) -> None:
    with db.session() as other:
        other.sql("SET transaction_isolation = 'serializable'")
        assert other.sql("SHOW transaction_isolation").fetchall() == [("serializable",)]
        assert db.sql("SHOW transaction_isolation").fetchall() == [("strict serializable",)]


def test_nobody_runs_it_any_more(tmp_path: Path) -> None:
    """What nobody brings up to date is not waited for; with a server, it would be."""
    with headwater.open(tmp_path / "data", writable=True) as db:
        db.create_table("t", {"k": "bigint"})
        with headwater.open(tmp_path / "data") as reader:
            shown = "SHOW transaction_isolation"
            assert reader.sql(shown).fetchall() == [("strict serializable",)]
            db.close()
            assert reader.sql(shown).fetchall() == [("serializable",)]
            reader.sql("SET transaction_isolation = 'strict serializable'")
            assert reader.sql(shown).fetchall() == [("strict serializable",)]


def test_a_relation_is_read_whatever_its_sessions_do(
    db: headwater.Database, orders: headwater.Relation
) -> None:
    orders.insert([{"id": 1, "region": "eu"}])
    db.sql("SET dialect = spark; BEGIN")
    assert len(orders.fetchall()) == 1
    db.sql("ROLLBACK; RESET dialect")
