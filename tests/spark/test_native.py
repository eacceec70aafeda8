"""What a stage computes by itself is what Spark computes, and it fails on the very same rows.

Every text is evaluated by both over the same rows: NULLs, ends of types, dates before any calendar.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException

from headwater.compute.catalyst.try_eval import passage_session
from headwater.compute.dataflow.edge import Edge, lane_scan
from headwater.compute.dataflow.native import native
from headwater.compute.dataflow.operator import update_schema
from headwater.compute.dataflow.passage import TRY
from headwater.compute.dataflow.texts import mentioned
from headwater.compute.ir.expression import Column, Expression, Named
from headwater.compute.ir.node import Project
from headwater.persist.consolidate import DIFF, TIME

pytestmark = pytest.mark.spark

COLUMNS = tuple(
    Column(name, type_, True)
    for name, type_ in (
        ("a_1", "bigint"),
        ("b_1", "bigint"),
        ("i_1", "int"),
        ("y_1", "tinyint"),
        ("d_1", "decimal(12,2)"),
        ("e_1", "decimal(5,3)"),
        ("s_1", "string"),
        ("t_1", "string"),
        ("p_1", "date"),
        ("q_1", "date"),
    )
)
_LONGS = (None, 0, 1, -1, 7, -13, 3_037_000_500, 2**63 - 1, -(2**63))
_INTS = (None, 0, 1, -10, 46_341, 2**31 - 1, -(2**31))
_DECIMALS = (None, "0.00", "0.05", "-1.50", "9999999999.99", "-9999999999.99", "24.00")
_STRINGS = (None, "", "a", "ab", "PROMO x", "special no requests", "ü%", "special\nrequests", "b_")
_DATES = (None, date(1970, 1, 1), date(1995, 3, 15), date(1, 1, 1), date(9999, 12, 31))


def _rows() -> pa.Table:
    random = Random(1)
    pools: dict[str, Sequence[Any]] = {
        "a_1": _LONGS,
        "b_1": _LONGS,
        "i_1": _INTS,
        "y_1": (None, 0, 5, -128, 127),
        "d_1": tuple(None if d is None else Decimal(d) for d in _DECIMALS),
        "e_1": (None, Decimal("0.000"), Decimal("99.999"), Decimal("-1.500")),
        "s_1": _STRINGS,
        "t_1": _STRINGS,
        "p_1": _DATES,
        "q_1": _DATES,
    }
    pairs = list(product(_LONGS, _LONGS))
    values = {name: [random.choice(pool) for _ in pairs] for name, pool in pools.items()}
    values["a_1"], values["b_1"] = map(list, zip(*pairs, strict=True))
    schema = update_schema(COLUMNS)
    rows = [pa.array(values[c.name], schema.field(c.name).type) for c in COLUMNS]
    # Years that Arrow's own function gets wrong, and that no literal says.
    days = pa.array([None if v is None else (v - date(1970, 1, 1)).days for v in values["q_1"]])
    far = pa.array([50_000_000 + n for n in range(len(pairs))]).cast(pa.int32())
    place = schema.names.index("q_1")
    mask = pa.array([n % 5 == 0 for n in range(len(pairs))])
    rows[place] = pc.if_else(mask, far, days.cast(pa.int32())).cast(pa.date32())
    numbers = pa.array(range(len(pairs)), pa.int64())
    return pa.Table.from_arrays([*rows, numbers, numbers], schema=schema)


NATIVE = (
    "(a_1 + b_1)",
    "(a_1 - b_1)",
    "(a_1 * b_1)",
    "((a_1 * b_1) + 1L)",
    "(i_1 * i_1)",
    "(y_1 + 3Y)",
    "(a_1 % 10L)",
    "(i_1 % 7)",
    "(CAST(i_1 AS BIGINT) * CAST(i_1 AS BIGINT))",
    "(d_1 * (CAST(1 AS DECIMAL(1,0)) - d_1))",
    "((d_1 * (CAST(1 AS DECIMAL(1,0)) - e_1)) - (d_1 * e_1))",
    "(e_1 + d_1)",
    "(d_1 < CAST(CAST(24 AS DECIMAL(2,0)) AS DECIMAL(12,2)))",
    "between(d_1, (0.06BD - 0.01BD), (0.06BD + 0.01BD))",
    "(d_1 = CAST(e_1 AS DECIMAL(12,3)))",
    "(CAST(i_1 AS DECIMAL(12,2)) >= d_1)",
    "(a_1 > 500000L)",
    "(a_1 <= CAST(i_1 AS BIGINT))",
    "(NOT (a_1 = b_1))",
    "((a_1 > 0L) AND (b_1 < 5L))",
    "((a_1 > 0L) OR (b_1 IS NULL))",
    "((a_1 > 0L) <=> true)",
    "(((a_1 * b_1) > 5L) <=> true)",
    "coalesce((a_1 * b_1), 5L)",
    "(s_1 < t_1)",
    "(s_1 = 'ab')",
    "(s_1 IN ('a', 'ab', ''))",
    "(i_1 IN (0, 46341))",
    "(NOT (i_1 IN (0, 1)))",
    "s_1 LIKE '%requests'",
    "s_1 LIKE 'PROMO%'",
    "s_1 LIKE '%no%'",
    "s_1 LIKE '%special%requests%'",
    "s_1 LIKE 'special%requests'",
    "s_1 LIKE 'ab'",
    "s_1 LIKE '%'",
    "(NOT s_1 LIKE '%b%')",
    "(p_1 <= date_add(DATE '1998-12-01', (- extract(DAY FROM INTERVAL '90' DAY))))",
    "((p_1 >= DATE '1970-01-01') AND (p_1 < DATE '1969-11-30' + INTERVAL '3' MONTH))",
    "(p_1 < q_1)",
    "date_part('YEAR', p_1)",
    "year(q_1)",
    "(date_part('YEAR', q_1) = 1995)",
    "CASE WHEN (s_1 = 'a') THEN d_1 ELSE CAST(0 AS DECIMAL(12,2)) END",
    "CASE WHEN (i_1 > 0) THEN 1 WHEN (i_1 IS NULL) THEN 2 END",
    "CASE WHEN ((a_1 IS NULL) AND (b_1 IS NOT NULL)) THEN 1.0D WHEN (a_1 <> 1) THEN 0.1D END",
    "coalesce(a_1, b_1, 5L)",
    "CAST(NULL AS BIGINT)",
    "(- 5)",
    "'text'",
    "if((s_1 IS NOT NULL), s_1, t_1)",
)


def _text(random: Random, kind: str, depth: int) -> str:
    """Return a text of this kind, which need not be one that a stage can compute."""
    if depth == 0:
        return random.choice(
            {
                "long": ["a_1", "b_1", "3L", "CAST(i_1 AS BIGINT)"],
                "decimal": ["d_1", "e_1", "0.5BD", "CAST(i_1 AS DECIMAL(10,0))"],
                "string": ["s_1", "t_1", "'ab'"],
                "date": ["p_1", "q_1", "DATE '1995-03-15'"],
                "boolean": ["(a_1 > 0L)", "(s_1 IS NULL)", "(p_1 < q_1)", "s_1 LIKE 'a%'"],
            }[kind]
        )

    def sub(of: str) -> str:
        return _text(random, of, depth - 1)

    if kind == "boolean":
        form = random.randrange(4)
        if form == 0:
            return f"({sub(kind)} {random.choice(('AND', 'OR'))} {sub(kind)})"
        if form == 1:
            return f"(NOT {sub(kind)})"
        of = random.choice(("long", "decimal", "string", "date"))
        if form == 2:
            return f"({sub(of)} IS NULL)"
        return f"({sub(of)} {random.choice(('=', '<', '<=', '>', '>='))} {sub(of)})"
    if kind in ("long", "decimal") and random.random() < 0.7:
        return f"({sub(kind)} {random.choice('+-*')} {sub(kind)})"
    if kind == "decimal":
        return sub(kind)
    return f"CASE WHEN {sub('boolean')} THEN {sub(kind)} ELSE {sub(kind)} END"


def _is_sql(frame: Any, text: str) -> bool:
    """Whether Spark knows what it means: most texts are made at random."""
    try:
        return bool(frame.selectExpr(text).columns)
    except AnalysisException:
        return False


def _expression(text: str, type_: str) -> Expression:
    return Expression(text, type_, True, tuple(dict.fromkeys(mentioned(text))))


def _own(text: str, type_: str, rows: pa.Table) -> dict[int, Any] | None:
    """Return what a stage computes, by the number of a row; those on which it fails are not in."""
    output = Named("r_1", _expression(text, type_))
    found = native(Edge(0, Project(lane_scan(COLUMNS), (output,)), 1))
    if found is None:
        return None
    moved, failed = found.moved(rows, update_schema((output.column,)))
    numbers = moved.column(DIFF).to_pylist()
    assert sorted([*numbers, *failed.column(DIFF).to_pylist()]) == list(range(rows.num_rows))
    return dict(zip(numbers, moved.column("r_1"), strict=True))


def test_a_stage_computes_as_spark_does(spark: Any) -> None:
    seed = 7
    print(f"seed {seed}")
    random = Random(seed)
    made = [_text(random, random.choice(("long", "decimal", "boolean")), 3) for _ in range(60)]
    session, rows = passage_session(spark), _rows()
    frame = session.createDataFrame(rows.drop_columns([TIME, DIFF]))
    texts = [*NATIVE, *(text for text in made if _is_sql(frame, text))]
    types = [field.dataType.simpleString() for field in frame.selectExpr(*texts).schema.fields]
    tried = [f"{TRY}(named_struct('v', {text}))" for text in texts]
    asked = [f"({one}.v) AS v{n}" for n, one in enumerate(tried)]
    asked += [f"({one} IS NOT NULL) AS ok{n}" for n, one in enumerate(tried)]
    answers = frame.selectExpr(*asked).toArrow()
    compared = 0
    for n, (text, type_) in enumerate(zip(texts, types, strict=True)):
        said, fine = answers.column(f"v{n}"), answers.column(f"ok{n}").to_pylist()
        found = _own(text, type_, rows)
        if found is None:
            assert text not in NATIVE, text
            continue
        compared += 1
        for place, answer in enumerate(said):
            same = place not in found or found[place].cast(answer.type).equals(answer)
            if not same or (place in found) != fine[place]:
                pytest.fail(f"{text}: {found.get(place)}, not {answer}: {rows.slice(place, 1)}")
    print(f"{compared} of {len(texts)} compared")
    assert compared > len(NATIVE) + 10
