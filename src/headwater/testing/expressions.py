"""A small part of Spark SQL's expressions, evaluated in Python: enough for random plans.

    evaluated(text)(row) -> value        row: names to Python values; NULL is None

What there is: columns, fields of structs, literals, comparisons (``<=>`` too), AND, OR, NOT,
IS [NOT] NULL, ``+ - *``, ``div`` and ``%``, CASE, CAST between numbers, ``nanvl``, ``unix_micros``,
``named_struct``, ``array``; arrays are tuples, structs are :class:`Struct`, timestamps have a zone.
Logic has three values. Anything else raises: a test that needs more says so.

Relied on by: ``testing/oracle.py``, ``testing/dataflow_model.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any, Final

import sqlglot
from sqlglot import exp


class Struct(tuple[tuple[str, Any], ...]):
    """The value of a struct: its fields, names and values, as something that can be hashed."""

    __slots__ = ()


def as_arrow(value: Any) -> Any:
    """Return a value as Arrow takes it."""
    if isinstance(value, Struct):
        return {name: as_arrow(part) for name, part in value}
    return [as_arrow(item) for item in value] if isinstance(value, tuple) else value


def from_arrow(value: Any) -> Any:
    """Return a value of Arrow's as it is here."""
    if isinstance(value, dict):
        return Struct((name, from_arrow(part)) for name, part in value.items())
    return tuple(map(from_arrow, value)) if isinstance(value, list) else value


Row = Mapping[str, Any]
Evaluated = Callable[[Row], Any]

_INTEGERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")


@cache
def evaluated(text: str) -> Evaluated:
    """Return the function that a text is."""
    return _function(sqlglot.parse_one(text, read="spark"))


def equal(a: Any, b: Any) -> bool | None:
    """Return whether ``a = b``; ``None`` is unknown."""
    if a is None or b is None:
        return None
    return bool(a == b)


def same(a: Any, b: Any) -> bool:
    """Return whether ``a <=> b``."""
    return a is None and b is None if a is None or b is None else bool(equal(a, b))


def less(a: Any, b: Any) -> bool | None:
    """Return whether ``a < b``."""
    return None if a is None or b is None else bool(a < b)


def _and(a: Any, b: Any) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _not(a: Any) -> bool | None:
    return None if a is None else not a


def _or(a: Any, b: Any) -> bool | None:
    return _not(_and(_not(a), _not(b)))


_BINARY: Final[dict[type[exp.Expression], Callable[[Any, Any], Any]]] = {
    exp.EQ: equal,
    exp.NEQ: lambda a, b: _not(equal(a, b)),
    exp.NullSafeEQ: same,
    exp.LT: less,
    exp.GT: lambda a, b: less(b, a),
    exp.LTE: lambda a, b: _not(less(b, a)),
    exp.GTE: lambda a, b: _not(less(a, b)),
    exp.And: _and,
    exp.Or: _or,
    exp.Is: same,
    exp.Add: lambda a, b: None if a is None or b is None else a + b,
    exp.Sub: lambda a, b: None if a is None or b is None else a - b,
    exp.Mul: lambda a, b: None if a is None or b is None else a * b,
    exp.IntDiv: lambda a, b: None if a is None or b is None else math.trunc(Fraction(a, b)),
    exp.Mod: lambda a, b: None if a is None or b is None else a - b * math.trunc(Fraction(a, b)),
}


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _function(node: exp.Expression) -> Evaluated:
    for kind, operation in _BINARY.items():
        if type(node) is kind:
            return _applied(operation, _function(node.this), _function(node.expression))
    match node:
        case exp.Paren():
            return _function(node.this)
        case exp.Column():
            return _column(node)
        case exp.Null():
            return lambda _: None
        case exp.Boolean():
            truth = bool(node.this)
            return lambda _: truth
        case exp.Literal():
            literal = node.this if node.is_string else _number(node.this)
            return lambda _: literal
        case exp.Neg():
            inner = _function(node.this)
            return lambda row: None if (value := inner(row)) is None else -value
        case exp.Not():
            inner = _function(node.this)
            return lambda row: _not(inner(row))
        case exp.Case():
            return _case(node)
        case exp.Cast():
            return _cast(_function(node.this), node.to.sql("spark").upper())
        case exp.UnixMicros():
            inner = _function(node.this)
            return lambda row: None if (value := inner(row)) is None else _micros(value)
        case exp.Nanvl():
            return _function(node.this)  # there is no NaN
        case exp.Array():
            items = [_function(item) for item in node.expressions]
            return lambda row: tuple(item(row) for item in items)
        case exp.Anonymous() if str(node.this).lower() == "named_struct":
            return _struct(node.expressions)
        case exp.Struct():
            return _struct(
                [part for item in node.expressions for part in (item.this, item.expression)]
            )
        case _:
            raise NotImplementedError(f"{type(node).__name__}: {node.sql('spark')}")


def _applied(operation: Callable[[Any, Any], Any], left: Evaluated, right: Evaluated) -> Evaluated:
    return lambda row: operation(left(row), right(row))


def _column(node: exp.Column) -> Evaluated:
    *outer, name = [part.name for part in node.parts]
    if not outer:
        return lambda row: row[name]
    (struct,) = outer
    return lambda row: None if row[struct] is None else dict(row[struct])[name]


def _number(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


def _case(node: exp.Case) -> Evaluated:
    branches = [(_function(i.this), _function(i.args["true"])) for i in node.args["ifs"]]
    default = _function(node.args.get("default") or exp.Null())

    def chosen(row: Row) -> Any:
        return next((then for when, then in branches if when(row)), default)(row)

    return chosen


def _cast(inner: Evaluated, type_: str) -> Evaluated:
    convert: Callable[[Any], Any]
    if type_ in _INTEGERS:
        convert = int
    elif type_ == "DOUBLE":
        convert = float
    elif type_.startswith("DECIMAL"):
        convert = Decimal  # of an integer: nothing is rounded
    else:
        convert = _nothing(type_)
    return lambda row: None if (value := inner(row)) is None else convert(value)


def _nothing(type_: str) -> Callable[[Any], Any]:
    def fail(value: Any) -> Any:
        raise NotImplementedError(f"CAST({value!r} AS {type_})")

    return fail


def _struct(parts: list[exp.Expression]) -> Evaluated:
    names = [part.name for part in parts[::2]]
    values = [_function(part) for part in parts[1::2]]
    return lambda row: Struct((n, value(row)) for n, value in zip(names, values, strict=True))
