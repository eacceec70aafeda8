"""Dates, timestamps and intervals: arithmetic, fields, truncation; all in UTC.

An interval is days and microseconds, a day has 24 hours. Months are added to a date or timestamp
directly, with the day clipped to the month's length, as both engines do.

Dates and timestamps are of the years 1 to 9999; what is found beyond is an error of the row. What
truncates or casts one finds none beyond.
"""

from __future__ import annotations

from typing import Any, Final

from headwater.adapter.dialect.casts import coerce
from headwater.adapter.dialect.literals import Interval, interval_value, quoted
from headwater.adapter.dialect.refusal import refuse
from headwater.adapter.dialect.signatures import Function, Signature, Special, no_function
from headwater.adapter.dialect.typed import (
    DATE,
    DOUBLE,
    INTEGER,
    INTEGERS,
    INTERVAL,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    Typed,
    cast_sql,
)
from headwater.collection.types import SqlType, numeric

_TIMES: Final = (DATE, TIMESTAMP, TIMESTAMPTZ)


def arithmetic(node: Any, operator: str, left: Typed, right: Typed) -> Typed | None:
    """``left operator right`` if one of them is a date, timestamp or interval; else None."""
    if left.type in _TIMES and operator in ("+", "-"):
        return _time_and(node, operator, left, right)
    if right.type in _TIMES and operator == "+" and left.type in (*INTEGERS, INTERVAL):
        return _time_and(node, "+", right, left)
    if INTERVAL not in (left.type, right.type):
        return None
    return _interval_and(node, operator, left, right)


def _time_and(node: Any, operator: str, left: Typed, right: Typed) -> Typed | None:
    if months := _literal_interval(right):
        return _shifted(node, operator, left, months)
    if left.type == DATE and right.type in INTEGERS[:2]:
        name = "date_add" if operator == "+" else "date_sub"
        return _held(f"{name}({left.sql}, {right.sql})", DATE, node)
    if right.type == INTERVAL:
        moment = coerce(left, TIMESTAMP) if left.type == DATE else left
        return _held(f"{moment.sql} {operator} {right.sql}", moment.type, node)
    if operator == "-" and (right.type in _TIMES or right.type == UNKNOWN):
        right = quoted(right, left.type) if right.type == UNKNOWN else right
        if left.type == right.type == DATE:
            return Typed(f"datediff({left.sql}, {right.sql})", INTEGER, node)
        type_ = max(left.type, right.type, key=_TIMES.index)
        return Typed(f"({coerce(left, type_).sql} - {coerce(right, type_).sql})", INTERVAL, node)
    return None


def _literal_interval(operand: Typed) -> Interval | None:
    """An interval literal that may have months."""
    if operand.type != INTERVAL or operand.literal is None:
        return None
    return Interval.read(operand.node, operand.literal)


def _shifted(node: Any, operator: str, left: Typed, by: Interval) -> Typed:
    moment = coerce(left, TIMESTAMP) if left.type == DATE else left
    sql = moment.sql
    if by.months:
        sign = "-" if by.months < 0 else ""
        sql = f"({sql} {operator} INTERVAL '{sign}{abs(by.months)}' MONTH)"
    if by.days or by.micros or not by.months:
        # Days are 24 hours in UTC: they and the rest are one step.
        step = interval_value(moment, Interval(0, by.days, by.micros))
        sql = f"({sql} {operator} {step.sql})"
    return _held(sql, moment.type, node)


def _held(sql: str, type_: SqlType, node: Any) -> Typed:
    """A date, timestamp or interval, if it is one that there is."""
    return Typed(f"headwater_held({sql})", type_, node)


def _interval_and(node: Any, operator: str, left: Typed, right: Typed) -> Typed | None:
    left, right = interval_operand(left), interval_operand(right)
    if operator in ("+", "-") and INTERVAL in (left.type, right.type):
        if UNKNOWN in (left.type, right.type):
            left, right = coerce(left, INTERVAL), coerce(right, INTERVAL)
        if left.type == right.type == INTERVAL:
            return Typed(f"({left.sql} {operator} {right.sql})", INTERVAL, node)
    if operator == "*" and {left.type.name, right.type.name} & {t.name for t in INTEGERS}:
        return _held(f"{left.sql} * {right.sql}", INTERVAL, node)
    return None


def interval_operand(operand: Typed) -> Typed:
    """An interval as a value; a literal that has months is refused here."""
    found = _literal_interval(operand)
    return operand if found is None else interval_value(operand, found)


# --- fields ---------------------------------------------------------------------------------------

_FIELDS: Final = {
    "year": "extract(YEAR FROM {0})",
    "quarter": "extract(QUARTER FROM {0})",
    "month": "extract(MONTH FROM {0})",
    "week": "extract(WEEK FROM {0})",
    "day": "extract(DAY FROM {0})",
    "dow": "(dayofweek({0}) - 1)",
    "isodow": "(weekday({0}) + 1)",
    "doy": "dayofyear({0})",
    "isoyear": "extract(YEAROFWEEK FROM {0})",
    "hour": "extract(HOUR FROM {0})",
    "minute": "extract(MINUTE FROM {0})",
}
_CLOCK: Final = ("hour", "minute", "second")
_MICROS: Final = "CAST(unix_micros(CAST({0} AS TIMESTAMP)) AS DECIMAL(19,0))"


def extract(node: Any, field: str, operand: Typed) -> Typed:
    """``extract(field FROM operand)``: a numeric, as since PostgreSQL 14."""
    field = field.lower()
    operand = interval_operand(operand)
    if operand.type == INTERVAL:
        return _interval_epoch(node, field, operand)
    if operand.type not in _TIMES:
        raise no_function(node, "extract", [operand])
    x = operand.sql
    if operand.type == DATE and field in _CLOCK:
        refuse(node, f"unit {field!r} of a date")
    if field == "epoch":
        if operand.type == DATE:
            days = f"CAST(datediff({x}, DATE'1970-01-01') AS DECIMAL(10,0))"
            return Typed(cast_sql(f"{days} * 86400", numeric(16, 0)), numeric(16, 0), node)
        sql = cast_sql(f"{_MICROS.format(x)} * 0.000001BD", numeric(20, 6))
        return Typed(sql, numeric(20, 6), node)
    if field == "second":
        return Typed(cast_sql(f"extract(SECOND FROM {x})", numeric(8, 6)), numeric(8, 6), node)
    if field not in _FIELDS:
        refuse(node, f"extract of {field!r}", f"There are {', '.join(sorted(_FIELDS))}, epoch.")
    return Typed(cast_sql(_FIELDS[field].format(x), numeric(10, 0)), numeric(10, 0), node)


def _interval_epoch(node: Any, field: str, operand: Typed) -> Typed:
    if field != "epoch":
        refuse(node, f"extract of {field!r} from an interval", "There is epoch.")
    x = operand.sql
    whole = (
        f"extract(DAY FROM {x}) * 86400L + extract(HOUR FROM {x}) * 3600"
        f" + extract(MINUTE FROM {x}) * 60"
    )
    seconds = f"CAST({whole} AS DECIMAL(19,0)) + extract(SECOND FROM {x})"
    return Typed(cast_sql(seconds, numeric(26, 6)), numeric(26, 6), node)


def _date_part(node: Any, arguments: list[Typed]) -> Typed:
    if arguments[0].literal is None:
        refuse(node, "date_part of a field that is no literal")
    if arguments[0].literal.lower() not in _FIELDS:
        # PostgreSQL computes these in doubles, digit by digit.
        refuse(node, f"date_part of {arguments[0].literal!r}", "Use extract.")
    found = extract(node, arguments[0].literal, arguments[1])
    return Typed(cast_sql(found.sql, DOUBLE), DOUBLE, node)


_UNITS: Final = (
    *("year", "quarter", "month", "week", "day", "hour", "minute", "second"),
    *("millisecond", "microsecond"),
)


def _date_trunc(node: Any, arguments: list[Typed]) -> Typed:
    unit, operand = arguments[0].literal, arguments[1]
    if unit is None or unit.lower().rstrip("s") not in _UNITS:
        refuse(node, "date_trunc to this unit", f"There are {', '.join(_UNITS)}.")
    if operand.type not in _TIMES:
        raise no_function(node, "date_trunc", arguments)
    type_ = TIMESTAMP if operand.type == TIMESTAMP else TIMESTAMPTZ
    zoned = operand.sql if operand.type == TIMESTAMPTZ else f"CAST({operand.sql} AS TIMESTAMP)"
    cut = f"date_trunc('{unit.upper().rstrip('S')}', {zoned})"
    return Typed(cast_sql(cut, type_) if type_ == TIMESTAMP else cut, type_, node)


TIME_FUNCTIONS: Final[dict[str, Function]] = {
    "date_trunc": Special(2, 2, _date_trunc),
    "date_part": Special(2, 2, _date_part),
    "make_date": (
        Signature((INTEGER, INTEGER, INTEGER), DATE, "headwater_held(make_date({0}, {1}, {2}))"),
    ),
    "now": (Signature((), TIMESTAMPTZ, "current_timestamp()"),),
}
