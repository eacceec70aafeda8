"""COPY of rows into a table: all of them at once, checked like an INSERT."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.adapter.errors import AdapterError
from headwater.testing.sql_server import SqlServer


def test_rows_arrive_in_batches_and_are_there_at_once() -> None:
    with SqlServer() as server:
        sql = server.session()
        sql("CREATE TABLE t (k bigint PRIMARY KEY, v text NOT NULL DEFAULT 'd', n int)")
        copy = sql.session.copy_in("t", ("n", "k"))
        assert [(column.name, column.type) for column in copy.columns] == [
            ("n", pa.int32()),
            ("k", pa.int64()),
        ]
        for start in (0, 2):
            copy.write(
                pa.record_batch(
                    [pa.array([None, 7], pa.int32()), pa.array([start, start + 1])], ["n", "k"]
                )
            )
        assert server.session()("SELECT count(*) FROM t") == [(0,)]
        copy.finish()
        assert sql("SELECT * FROM t") == [
            (0, "d", None),
            (1, "d", 7),
            (2, "d", None),
            (3, "d", 7),
        ]


@pytest.mark.parametrize(
    ("columns", "batch", "sqlstate"),
    [
        (("k",), pa.record_batch([pa.array([5, 1])], ["k"]), "23505"),
        (("k", "v"), pa.record_batch([pa.array([5]), pa.array([None], pa.string())], ["k", "v"]),
         "23502"),
    ],
)  # fmt: skip
def test_what_is_refused_leaves_nothing(
    columns: tuple[str, ...], batch: pa.RecordBatch, sqlstate: str
) -> None:
    with SqlServer() as server:
        sql = server.session()
        sql("CREATE TABLE t (k bigint PRIMARY KEY, v text NOT NULL DEFAULT 'd')")
        sql("INSERT INTO t VALUES (1)")
        copy = sql.session.copy_in("t", columns)
        copy.write(batch)
        with pytest.raises(AdapterError) as refused:
            copy.finish()
        copy.abort()
        assert refused.value.sqlstate == sqlstate
        assert sql("SELECT * FROM t") == [(1, "d")]


def test_in_a_transaction_it_is_part_of_it() -> None:
    with SqlServer() as server:
        sql = server.session()
        sql("CREATE TABLE t (k bigint); BEGIN")
        for end in ("ROLLBACK", "COMMIT"):
            copy = sql.session.copy_in("t", None)
            copy.write(pa.record_batch([pa.array([1, 2])], ["k"]))
            copy.finish()
            assert server.session()("SELECT count(*) FROM t") == [(0,)]
            sql(f"{end}; BEGIN")
        sql("ROLLBACK")
        assert sql("SELECT count(*) FROM t") == [(2,)]
        with pytest.raises(AdapterError):
            sql.session.copy_in("t", ("nothing",))
