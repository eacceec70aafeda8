"""What an expression means where PostgreSQL and Spark differ: the decisions, as data.

Spark evaluates everything. In Spark's dialect its own meaning holds. In PostgreSQL's dialect the
result has PostgreSQL's type and value, and :data:`MEANINGS` says with which Spark SQL text. Where
PostgreSQL's own answer has no bound (the digits of a quotient or an average) it is arithmetic of
its own: ``adapter/dialect/numerics.py``.

Spark runs in UTC, with ANSI on, and compares strings as UTF8_BINARY: overflow, division by zero and
a cast that does not fit are errors in both dialects, never NULL, never a wrapped value.

Every line is held against a real PostgreSQL and a real Spark (``tests/spark/test_meaning.py``).

Relied on by: the adapter's transpiler, and everybody who casts by hand.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from headwater.base.errors import InvalidUsage

JSON_WHOLE_DIGITS_MAX: Final = 131_072
JSON_FRACTION_DIGITS_MAX: Final = 16_383
"""PostgreSQL's limits of a numeric: a short ``1e999999999`` must not become a long text."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """One construct of PostgreSQL and how Spark is asked for it."""

    construct: str
    """As PostgreSQL writes it, with operands ``{0}``, ``{1}``."""
    operands: tuple[str, ...]
    """PostgreSQL types of the operands."""
    result: str
    """PostgreSQL type of our result."""
    sql: str
    """Spark SQL, with the same operands."""
    note: str = ""


def _integers(construct: str, sql: str, note: str) -> tuple[Meaning, ...]:
    kinds = (("smallint", "smallint"), ("integer", "int"), ("bigint", "bigint"))
    return tuple(
        Meaning(construct, (name, name), name, f"cast({sql} as {spark})", note)
        for name, spark in kinds
    )


def _rounded(target: str, spark: str) -> tuple[Meaning, ...]:
    half_even, half_away = "half to even, Spark truncates", "half away from zero, Spark truncates"
    cast = f"cast({{0}} as {target})"
    return (
        Meaning(cast, ("double precision",), target, f"cast(rint({{0}}) as {spark})", half_even),
        Meaning(cast, ("real",), target, f"cast(rint({{0}}) as {spark})", half_even),
        Meaning(cast, ("numeric(38,9)",), target, f"cast(round({{0}}, 0) as {spark})", half_away),
    )


_EXACT_SUM: Final = "sum(cast({0} as decimal(19,0)))"

MEANINGS: Final = (
    *_integers("{0} / {1}", "{0} div {1}", "truncates towards zero; Spark's / gives a double"),
    *_integers("{0} % {1}", "{0} % {1}", "has the sign of the dividend, in both"),
    *_rounded("smallint", "smallint"),
    *_rounded("integer", "int"),
    *_rounded("bigint", "bigint"),
    Meaning("round({0})", ("double precision",), "double precision", "rint({0})", "half to even"),
    Meaning("{0} - {1}", ("date", "date"), "integer", "datediff({0}, {1})", "a number of days"),
    Meaning("sum({0})", ("smallint",), "bigint", "sum({0})"),
    Meaning("sum({0})", ("integer",), "bigint", "sum({0})"),
    Meaning(
        "sum({0})",
        ("bigint",),
        "numeric(38,0)",
        f"cast({_EXACT_SUM} as decimal(38,0))",
        "cannot overflow; in Spark's dialect it is a bigint and can",
    ),
    Meaning(
        "sum({0})",
        ("real",),
        "real",
        "cast(sum({0}) as float)",
        "the exact sum, rounded once; PostgreSQL rounds after every row",
    ),
    Meaning("count({0})", ("integer",), "bigint", "count({0})"),
)


class NotJson(InvalidUsage):
    """Text that is no JSON value, or none that we can hold."""

    def __init__(self, why: str) -> None:
        super().__init__(f"invalid input syntax for type jsonb: {why}")


def canonical_json(text: str) -> str:
    """Return the one text of a JSON value: equal values (PostgreSQL's ``jsonb =``) have it equal.

    Keys by length and then by bytes, the last of equal keys, ``", "`` and ``": "`` between, numbers
    plain and without needless zeros. PostgreSQL shows ``1.10`` as it was written; here it is 1.1.

    >>> canonical_json('{"bb":1.50,"a":[1e2,null,-0.0], "a":"\\u00e9"}')
    '{"a": "é", "bb": 1.5}'
    """
    try:
        return _written(
            json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=_no_constant)
        )
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise NotJson(str(error)) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _written(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Decimal():
            return _number(value)
        case str():
            if "\0" in value:
                raise NotJson("\\u0000 cannot be converted to text")
            value.encode()  # half of a surrogate pair is no character
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{', '.join(map(_written, value))}]"
        case _:
            keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
            entries = (f"{_written(key)}: {_written(value[key])}" for key in keys)
            return f"{{{', '.join(entries)}}}"


def _number(value: Decimal) -> str:
    digits, exponent = value.as_tuple().digits, value.as_tuple().exponent
    assert isinstance(exponent, int)
    if value.is_zero():
        return "0"
    if len(digits) + exponent > JSON_WHOLE_DIGITS_MAX or -exponent > JSON_FRACTION_DIGITS_MAX:
        raise NotJson("a number has too many digits")
    plain = format(value, "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain
