"""Constants: what the client wrote → what Spark reads as the same value.

A quoted literal has no type until its surroundings give it one; then its text is read here, by
PostgreSQL's input rules as ``adapter/sql/text.py`` has them, and a mistake is reported with its
place before anything runs. An interval with months is not a value here (its length is not a
number): it may only be added to a date or timestamp, see :mod:`.time_functions`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, cast

from sqlglot import exp

from headwater.adapter.dialect.refusal import position, refuse
from headwater.adapter.dialect.typed import (
    BARE,
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    FLOATS,
    INTEGER,
    INTEGERS,
    INTERVAL,
    PRECISION_MAX,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    Typed,
    cast_sql,
)
from headwater.adapter.errors import AdapterError, InvalidText, OutOfRange, SqlSyntaxError
from headwater.adapter.sql import text as text_form
from headwater.adapter.sql.forms import Form, canonical
from headwater.collection.type_table import TEXT_FORMS
from headwater.collection.types import SqlType, numeric

_ESCAPES: Final = {"\\": "\\\\", "'": "\\'", "$": "\\u0024", "\0": ""}
"""``$`` is escaped, because Spark replaces ``${…}`` in the text of a query by its settings."""


def string(text: str) -> str:
    """A Spark string literal."""
    return "'" + "".join(_ESCAPES.get(character, character) for character in text) + "'"


def identifier(name: str) -> str:
    """A Spark identifier."""
    return "`" + name.replace("`", "``") + "`"


_DIGITS_MAX: Final = (
    f"A numeric has at most {PRECISION_MAX}: round it, or write it as a text '…'::double precision."
)


def number(node: Any, text: str) -> Typed:
    """An unquoted number: the smallest of integer, bigint and numeric that holds it."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise SqlSyntaxError(text, position=position(node)) from None
    if abs(value.adjusted()) > 2 * PRECISION_MAX and value:
        refuse(node, f"a number of more than {2 * PRECISION_MAX} digits", _DIGITS_MAX)
    if re.fullmatch(r"-?\d+", text):
        for type_ in (INTEGER, BIGINT):
            bound = 1 << (31 if type_ == INTEGER else 63)
            if -bound <= value < bound:
                digits = str(int(value))
                sql = digits if type_ == INTEGER else f"{digits}L"
                if int(value) in (-(1 << 31), -(1 << 63)):  # Spark reads the digits first
                    sql = cast_sql(string(digits), type_)
                return Typed(f"({sql})" if digits.startswith("-") else sql, type_, node)
    plain = format(value, "f")
    whole, _, fraction = plain.lstrip("-").partition(".")
    precision, scale = len(whole.lstrip("0")) + len(fraction), len(fraction)
    if precision > PRECISION_MAX:
        refuse(node, f"a number of {precision} digits", _DIGITS_MAX)
    type_ = numeric(max(precision, scale, 1), scale)
    return Typed(cast_sql(string(plain), type_), type_, node)


def signed(node: Any) -> str | None:
    """The number that a sign and a number are, in brackets or not: one constant to PostgreSQL.

    So ``-2147483648`` is an integer, although ``2147483648`` is a bigint.
    """
    if isinstance(node, exp.Paren):
        return signed(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        return str(node.this)
    if not isinstance(node, exp.Neg):
        return None
    digits = signed(node.this)
    return digits if digits is None else digits[1:] if digits.startswith("-") else f"-{digits}"


def quoted(operand: Typed, type_: SqlType) -> Typed:
    """An untyped literal as a value of ``type_``."""
    assert operand.type == UNKNOWN
    if operand.literal is None:
        return operand.of(cast_sql("NULL", type_), type_)
    try:
        return _read(operand, operand.literal, type_)
    except AdapterError as error:
        error.position = error.position or position(operand.node)
        raise


def _read(operand: Typed, text: str, type_: SqlType) -> Typed:
    if type_ == TEXT:
        return Typed(string(text), TEXT, operand.node, text)
    if type_ == INTERVAL:
        interval = Interval.read(operand.node, text)
        sql = MONTHS if interval.months else interval_value(operand, interval).sql
        return Typed(sql, INTERVAL, operand.node, text)
    if type_.name == "numeric":
        return _numeric(operand, text, type_)
    if type_.name in TEXT_FORMS:
        return operand.of(string(canonical(text, cast("Form", type_.name))), type_)
    if type_ not in (BOOLEAN, *INTEGERS, *FLOATS, DATE, TIMESTAMP, TIMESTAMPTZ, BYTEA):
        refuse(operand.node, f"a literal of type {type_.postgres}")
    value = text_form.from_text(text, type_.arrow)
    match value:
        case bool():
            return operand.of("TRUE" if value else "FALSE", type_)
        case datetime():
            written = value.replace(tzinfo=None).isoformat(" ")
            kind = "TIMESTAMP" if type_ == TIMESTAMPTZ else "TIMESTAMP_NTZ"
            return operand.of(f"{kind}'{written}'", type_)
        case date():
            return operand.of(f"DATE'{value.isoformat()}'", type_)
        case bytes():
            return operand.of(f"X'{value.hex()}'", type_)
        case float():
            named = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
            return operand.of(cast_sql(string(named.get(repr(value), repr(value))), type_), type_)
        case _:
            return operand.of(cast_sql(string(str(value)), type_), type_)


def _numeric(operand: Typed, text: str, type_: SqlType) -> Typed:
    value = text_form.from_text(text, BARE.arrow)
    assert isinstance(value, Decimal)
    if value.adjusted() > PRECISION_MAX or -int(value.as_tuple().exponent) > 2 * PRECISION_MAX:
        raise OutOfRange(type_.postgres, text)
    plain = format(value, "f")
    shown = len(plain.partition(".")[2]) == type_.args[1]
    return operand.of(cast_sql(string(plain), type_), type_, scale_shown=shown)


MONTHS: Final = "\0months"
"""Stands for an interval of months, which has no value; it may not be left in a finished query."""

# --- intervals ------------------------------------------------------------------------------------

_UNITS: Final = {
    **dict.fromkeys(("us", "usec", "usecs", "microsecond", "microseconds"), ("micros", 1)),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), ("micros", 1_000)),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), ("micros", 1_000_000)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), ("micros", 60_000_000)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), ("micros", 3_600_000_000)),
    **dict.fromkeys(("d", "day", "days"), ("days", 1)),
    **dict.fromkeys(("w", "week", "weeks"), ("days", 7)),
    **dict.fromkeys(("mon", "mons", "month", "months"), ("months", 1)),
    **dict.fromkeys(("y", "yr", "yrs", "year", "years"), ("months", 12)),
}
_PIECE: Final = re.compile(
    r"\s*(?:(?P<sign>[+-]?)(?P<h>\d{1,6}):(?P<m>\d{2})(?::(?P<s>\d{2})(?P<f>\.\d{1,6})?)?"
    r"|(?P<number>[+-]?\d{1,9}(?P<fraction>\.\d{1,6})?)\s*(?P<unit>[a-z]+))\s*",
    re.ASCII | re.IGNORECASE,
)
DAY_MICROS: Final = 86_400_000_000
_MONTHS_MAX: Final = 12 * 10_000
_DAYS_MAX: Final = 10_000 * 366


@dataclass(frozen=True, slots=True)
class Interval:
    """PostgreSQL's three parts of an interval."""

    months: int
    days: int
    micros: int

    @classmethod
    def read(cls, node: Any, text: str) -> Interval:
        """``1 day 02:03:04``, ``-3 months``: units in words, and one clock at most."""
        parts = {"months": 0, "days": 0, "micros": 0}
        place = 0
        while place < len(text):
            found = _PIECE.match(text, place)
            if found is None or (found["unit"] and found["unit"].lower() not in _UNITS):
                raise InvalidText("interval", text)
            place = found.end()
            if found["unit"]:
                part, size = _UNITS[found["unit"].lower()]
                if found["fraction"] and part != "micros":
                    refuse(node, "a fraction of a day or month in an interval", "Use hours.")
                scaled = Decimal(found["number"]) * size
                if scaled != int(scaled):
                    refuse(node, "an interval finer than a microsecond")
                parts[part] += int(scaled)
            else:
                clock = (int(found["h"]) * 60 + int(found["m"])) * 60 + int(found["s"] or 0)
                micros = clock * 1_000_000 + int(Decimal(found["f"] or 0) * 1_000_000)
                parts["micros"] += -micros if found["sign"] == "-" else micros
        if not text.strip():
            raise InvalidText("interval", text)
        if (
            abs(parts["months"]) > _MONTHS_MAX
            or abs(parts["days"]) * DAY_MICROS + abs(parts["micros"]) > _DAYS_MAX * DAY_MICROS
        ):
            raise OutOfRange("interval", text)
        return cls(parts["months"], parts["days"], parts["micros"])


def interval_value(operand: Typed, interval: Interval) -> Typed:
    """An interval without months, as a value: a day has 24 hours."""
    if interval.months:
        refuse(
            operand.node,
            "an interval of months as a value",
            "Add it to a date or timestamp directly, or use days.",
        )
    micros = interval.days * DAY_MICROS + interval.micros
    sign, micros = ("-" if micros < 0 else ""), abs(micros)
    days, rest = divmod(micros, DAY_MICROS)
    seconds, fraction = divmod(rest, 1_000_000)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    clock = f"{days} {hours:02d}:{minutes:02d}:{seconds:02d}.{fraction:06d}"
    return operand.of(f"INTERVAL '{sign}{clock}' DAY TO SECOND", INTERVAL)
