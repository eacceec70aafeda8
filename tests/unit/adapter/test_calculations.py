"""What stands where a value does: literals at once, expressions for PostgreSQL to calculate."""

from __future__ import annotations

import pytest

from headwater.adapter.errors import Unsupported
from headwater.adapter.sql.parse import parse
from headwater.adapter.sql.statements import Calculated, CreateTable, Insert
from headwater.testing.sql_server import SqlServer


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", 1),
        ("-(2)", -2),
        ("'a'", "a"),
        ("1 + 1", Calculated("1 + 1", is_steady=True)),
        ("current_date", Calculated("CURRENT_DATE", is_steady=True)),
        ("upper('a')", Calculated("UPPER('a')", is_steady=True)),
        ("random()", Calculated("RANDOM()", is_steady=False)),
        ("nosuch(1)", Calculated("NOSUCH(1)", is_steady=False)),
    ],
)
def test_where_a_value_stands(written: str, value: object) -> None:
    (insert,) = parse(f"INSERT INTO t VALUES ({written})")
    assert isinstance(insert, Insert)
    assert insert.rows == ((value,),)


def test_a_default_is_kept_as_it_is_stored_or_as_it_is_calculated() -> None:
    (create,) = parse("CREATE TABLE t (a numeric(4, 1) DEFAULT 1, b int DEFAULT 1 + 1)")
    assert isinstance(create, CreateTable)
    plain, open_ = (column.default for column in create.columns)
    assert str(plain) == "1.0"
    assert open_ == Calculated("1 + 1", is_steady=True)


def test_without_postgresql_it_is_refused_with_a_way_out() -> None:
    with SqlServer() as server:
        session = server.session()
        session("CREATE TABLE t (a int)")
        for statement in ("INSERT INTO t VALUES (1 + 1)", "CREATE TABLE u (a int DEFAULT 1 + 1)"):
            with pytest.raises(Unsupported) as refused:
                session(statement)
            assert refused.value.hint == "Write INSERT … SELECT: that is computed by Spark."
