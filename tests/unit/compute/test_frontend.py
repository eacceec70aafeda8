"""Which SQL is a view so far, which columns it means, and what is said to the rest."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.base.errors import InvalidUsage
from headwater.compute.frontend import parse, relations_of
from headwater.compute.view import (
    CountOutput,
    GroupOutput,
    InputColumn,
    JoinSumView,
    SumOutput,
    output_key,
    schemas,
)

A = pa.schema([("k", pa.int64()), ("m", pa.int32()), ("Name", pa.string()), ("x", pa.int64())])
B = pa.schema(
    [("k", pa.int32()), ("m", pa.int64()), ("y", pa.decimal128(30, 2)), ("d", pa.float64())]
)
SCHEMAS = {"a": A, "b": B}


def test_the_supported_shape() -> None:
    sql = """SELECT b.y AS why, name, sum(x) total, COUNT(*) AS n, count(b.d)
             FROM a INNER JOIN b AS b ON b.k = a.k AND (a.m = b.m) GROUP BY name, b.y"""
    parsed = parse(sql, SCHEMAS)
    assert (parsed.left, parsed.right) == ("a", "b")
    assert parsed.query == JoinSumView(
        left_key=("k", "m"),
        right_key=("k", "m"),
        group=(InputColumn("left", "Name"), InputColumn("right", "y")),
        aggregated=(InputColumn("left", "x"), InputColumn("right", "d")),
        outputs=(
            GroupOutput("why", 1),
            GroupOutput("name", 0),
            SumOutput("total", 0),
            CountOutput("n", None),
            CountOutput("count(d)", 1),
        ),
    )
    assert parsed.query.needed("left") == ("k", "m", "Name", "x")
    assert parsed.query.needed("right") == ("k", "m", "y", "d")
    assert output_key(parsed.query) == ("name", "why")


def test_types_of_the_output() -> None:
    parsed = parse("SELECT a.m, sum(y) s, sum(x) FROM a JOIN b ON a.k = b.k GROUP BY a.m", SCHEMAS)
    output = schemas(parsed.query, A, B).output
    assert [field.type for field in output] == [pa.int32(), pa.decimal128(38, 2), pa.int64()]


def test_a_self_join_needs_two_names() -> None:
    parsed = parse("SELECT p.k, count(*) FROM a p JOIN a q ON p.k = q.m GROUP BY p.k", SCHEMAS)
    assert (parsed.left, parsed.right) == ("a", "a")
    assert (parsed.query.left_key, parsed.query.right_key) == (("k",), ("m",))
    with pytest.raises(InvalidUsage, match="same name"):
        parse("SELECT a.k, count(*) FROM a JOIN a ON a.k = a.m GROUP BY a.k", SCHEMAS)


FROM = "FROM a JOIN b ON a.k = b.k GROUP BY name"
REFUSED = [
    ("SELECT name FROM a GROUP BY name", "two relations"),
    ("SELECT name, sum(x) FROM a, b GROUP BY name", "JOIN"),
    ("SELECT name, sum(x) FROM a LEFT JOIN b ON a.k = b.k GROUP BY name", "JOIN"),
    ("SELECT name, sum(x) FROM a JOIN b USING (k) GROUP BY name", "JOIN"),
    ("SELECT name, sum(x) FROM a JOIN b ON a.k < b.k GROUP BY name", "join condition"),
    ("SELECT name, sum(x) FROM a JOIN b ON a.k = 1 GROUP BY name", "expression 1"),
    ("SELECT name, sum(x) FROM a JOIN b ON a.k = b.k OR a.m = b.m GROUP BY name", "condition"),
    ("SELECT sum(x) FROM a JOIN b ON a.k = b.k", "GROUP BY"),
    ("SELECT name, sum(x) FROM a JOIN (SELECT * FROM b) b ON a.k = b.k GROUP BY name", "subquery"),
    ("SELECT name, sum(x) FROM a JOIN b ON a.k = b.k WHERE x > 1 GROUP BY name", "WHERE"),
    (f"SELECT name, sum(x) {FROM} HAVING sum(x) > 1", "HAVING"),
    (f"SELECT name, sum(x) {FROM} ORDER BY name", "ORDER"),
    (f"SELECT name, sum(x) {FROM} LIMIT 1", "LIMIT"),
    (f"SELECT DISTINCT name, sum(x) {FROM}", "DISTINCT"),
    (f"SELECT name, sum(DISTINCT x) {FROM}", "expression"),
    (f"SELECT name, sum(x) FILTER (WHERE x > 1) {FROM}", "expression"),
    (f"SELECT name, sum(x + 1) {FROM}", "expression"),
    (f"SELECT name, max(x) {FROM}", "expression"),
    (f"SELECT name, sum(x) OVER () {FROM}", "expression"),
    (f"SELECT x, sum(x) {FROM}", "neither in GROUP BY"),
    (f"SELECT nothing, sum(x) {FROM}", "does not exist"),
    (f"SELECT k, sum(x) {FROM}", "ambiguous"),
    (f"SELECT name, sum(x) s, count(*) S {FROM}", "same name"),
    (f"SELECT name, sum(x) {FROM} WITH ROLLUP", "ROLLUP"),
    ("SELECT name, sum(x) FROM a JOIN c ON a.k = c.k GROUP BY name", "no relation"),
    ("SELECT name, sum(x) FROM a TABLESAMPLE (1 ROWS) JOIN b ON a.k = b.k GROUP BY name", "FROM"),
    (f"WITH q AS (SELECT 1) SELECT name, sum(x) {FROM}", "WITH"),
    ("INSERT INTO a SELECT 1", "one SELECT"),
    ("SELECT 1; SELECT 2", "one SELECT"),
    ("SELEC name", "one SELECT"),
    ("SELECT (", "cannot be read"),
]


@pytest.mark.parametrize(("sql", "words"), REFUSED)
def test_everything_else_is_refused_in_words(sql: str, words: str) -> None:
    with pytest.raises(InvalidUsage, match=words):
        parse(sql, SCHEMAS)


def test_what_cannot_be_summed_or_joined_is_refused() -> None:
    floating = parse(f"SELECT name, sum(d) {FROM}", SCHEMAS)
    with pytest.raises(InvalidUsage, match="sum of double"):
        schemas(floating.query, A, B)
    mixed = parse("SELECT name, count(*) FROM a JOIN b ON a.k = b.y GROUP BY name", SCHEMAS)
    with pytest.raises(InvalidUsage, match="hashed differently"):
        schemas(mixed.query, A, B)


def test_relations_of_any_query() -> None:
    assert relations_of("WITH q AS (SELECT * FROM T) SELECT (SELECT 1 FROM s) FROM q") >= {"t", "s"}
