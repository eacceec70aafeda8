"""What can fail on a row, and what cannot."""

from __future__ import annotations

import pytest

from headwater.compute.ir.expression import Expression
from headwater.compute.ir.fallible import may_fail

TYPES = {
    "x_1": "int",
    "y_1": "bigint",
    "s_1": "string",
    "d_1": "date",
    "p_1": "decimal(12,2)",
    "b_1": "boolean",
}
SAFE = [
    "x_1",
    "NULL",
    "(x_1 > 5)",
    "(s_1 IS NOT NULL)",
    "((d_1 >= DATE '1993-07-01') AND (d_1 < DATE '1993-07-01' + INTERVAL '3' MONTH))",
    "(d_1 <= date_add(DATE '1998-12-01', (- extract(DAY FROM INTERVAL '90' DAY))))",
    "between(p_1, (0.06BD - 0.01BD), CAST(CAST(24 AS DECIMAL(2,0)) AS DECIMAL(12,2)))",
    "((x_1 = 15) AND s_1 LIKE '%BRASS')",
    "(NOT x_1 IN (1, 2))",
    "(CAST(x_1 AS BIGINT) = y_1)",
    "(CAST(p_1 AS DECIMAL(20,2)) > 1.5BD)",
    "(CAST(CAST(x_1 AS DECIMAL(10,0)) AS DECIMAL(24,3)) > p_1)",
    "CASE WHEN (x_1 = 1) THEN s_1 ELSE 'a' END",
    "substring(s_1, 1, 2) IN ('a', 'b')",
    "(b_1 OR (x_1 <=> 3))",
    "(s_1 = 'it\\'s (1 / 0)')",
    "CAST(x_1 AS STRING)",
]
UNSAFE = [
    "((10 / x_1) > 5)",
    "(x_1 + 1)",
    "CAST(CAST(x_1 AS DECIMAL(10,0)) AS DECIMAL(9,0))",
    "CAST(CAST(x_1 AS BIGINT) AS SMALLINT)",
    "(- x_1)",
    "div(10, x_1)",
    "CAST(s_1 AS INT)",
    "CAST(s_1 AS DOUBLE)",
    "CAST(x_1 AS SMALLINT)",
    "CAST(y_1 AS DECIMAL(10,0))",
    "(CAST(p_1 AS DECIMAL(5,2)) > 1.5BD)",
    "element_at(s_1, 1)",
    "CASE WHEN (x_1 = 1) THEN raise_error('one') ELSE 'a' END",
    "CASE WHEN (x_1 = 1) THEN (1 / 0) ELSE 1 END",
    "(x_1 = (y_1 % 2))",
    "somebodys(x_1)",
    "x_2",
]


@pytest.mark.parametrize(("texts", "fails"), [(SAFE, False), (UNSAFE, True)])
def test_what_may_fail(texts: list[str], fails: bool) -> None:
    for text in texts:
        assert may_fail(Expression(text, "boolean", True, ()), TYPES) == fails, text
