"""Which expressions can fail on a row, told from their text.

    may_fail(expression, types)  =  False    only if no row makes it fail

A text is reduced, from the inside out: constants to one constant, and what never fails of values
(comparisons, tests for NULL, ``AND``, ``CASE``, a few functions, casts that keep every value) to
one value. What can be reduced to nothing but a value never fails; all the rest may: arithmetic, as
it overflows and divides by zero, other casts, functions that are not known. A constant of dates and
literals is taken to have a value.

Conservative: to take a safe expression for one that may fail costs time, never an error.

Pure. Kept by: ``tests/unit/compute_ir/test_fallible.py``. Relied on by: ``dataflow/raw.py``,
``dataflow/lower_group.py``, ``catalyst/ordered.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from headwater.compute.ir.expression import NAME, Column, Expression

_CONSTANT, _VALUE, _ANY = "\x01", "\x02", "[\x01\x02]"
_LITERAL: Final = re.compile(
    r"""(?:\b(?:DATE|TIMESTAMP|TIMESTAMP_NTZ|TIMESTAMP_LTZ|TIME|X)\s*)?'(?:[^'\\]|\\.)*'"""
    r"""|\b\d+(?:\.\d+)?(?:E[-+]?\d+)?(?:BD|[LSYDF])?\b|\b(?:NULL|true|false)\b""",
    re.IGNORECASE,
)
_WIDENED: Final = re.compile(
    rf"CAST\(({NAME.pattern}) AS ([A-Za-z_]+(?:\([0-9]+,\s*[0-9]+\))?)\)", re.IGNORECASE
)
_TYPE: Final = r"[\w ]+(?:\([\x01, ]+\))?"
_SAFE: Final = (
    "between|coalesce|concat|contains|day|dayofmonth|endswith|greatest|if|ifnull|isnan|isnotnull|"
    "isnull|least|length|lower|ltrim|month|nanvl|nullif|nvl|nvl2|quarter|rtrim|startswith|substr|"
    "substring|trim|upper|year"
)
_OF_CONSTANTS: Final = "add_months|date_add|date_sub|date_part"
_NOTHING: Final = re.compile(r"\bIS (NOT )?NULL\b", re.IGNORECASE)
_RULES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE), result)
    for pattern, result in (
        (rf"\bINTERVAL {_CONSTANT} (?:\w+ TO \w+|YEAR|MONTH|DAY|HOUR|MINUTE|SECOND)\b", _CONSTANT),
        (rf"\bCAST\({_CONSTANT} AS {_TYPE}\)", _CONSTANT),
        (rf"\bextract\(\w+ FROM {_CONSTANT}\)", _CONSTANT),
        (rf"\b(?:{_OF_CONSTANTS})\({_CONSTANT}(?:, {_CONSTANT})*\)", _CONSTANT),
        (rf"{_CONSTANT} [-+*] {_CONSTANT}", _CONSTANT),
        (rf"\(- {_CONSTANT}\)", _CONSTANT),
        (rf"{_ANY} (?:NOT )?IN \({_ANY}(?:, {_ANY})*\)", _VALUE),
        (rf"\b(?:{_SAFE})\({_ANY}(?:, {_ANY})*\)", _VALUE),
        (rf"{_ANY} (?:<=>|<>|!=|<=|>=|=|<|>) {_ANY}", _VALUE),
        (rf"{_ANY} IS (?:NOT )?NOTHING\b", _VALUE),
        (rf"{_ANY} (?:NOT )?LIKE {_CONSTANT}", _VALUE),
        (rf"\bCASE(?: WHEN {_ANY} THEN {_ANY})+(?: ELSE {_ANY})? END\b", _VALUE),
        (rf"(?<!\w)\(({_ANY})\)", r"\1"),
        (rf"\bNOT {_ANY}", _VALUE),
        (rf"{_ANY} (?:AND|OR) {_ANY}", _VALUE),
    )
)
_WIDTHS: Final = {"tinyint": 1, "smallint": 2, "int": 3, "bigint": 4}
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),\s*([0-9]+)\)")
_INTEGRAL_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


def may_fail(expression: Expression, types: Mapping[str, str]) -> bool:
    """Whether evaluating it may fail; ``types`` are those of its columns.

    >>> may_fail(Expression("(x_1 > 5)", "boolean", True, ("x_1",)), {"x_1": "int"})
    False
    >>> may_fail(Expression("((10 / x_1) > 5)", "boolean", True, ("x_1",)), {"x_1": "int"})
    True
    """
    if any(mark in expression.text for mark in (_CONSTANT, _VALUE)):
        return True

    def widened(found: re.Match[str]) -> str:
        return found[1] if _keeps(types.get(found[1], ""), found[2].lower()) else found[0]

    text, inside = expression.text, ""
    while text != inside:  # A cast of a cast that keeps every value casts the value itself.
        inside, text = text, _WIDENED.sub(widened, text)
    text = _NOTHING.sub(r"IS \1NOTHING", text)
    text = _LITERAL.sub(_CONSTANT, text)
    text = NAME.sub(lambda found: _VALUE if found[0] in types else found[0], text)
    before = ""
    while text != before:
        before = text
        for pattern, result in _RULES:
            text = pattern.sub(result, text)
    return text not in (_CONSTANT, _VALUE)


def only_where(
    argument: Expression, where: Expression | None, columns: Iterable[Column]
) -> Expression:
    """Return an argument of a call that fails only on rows which its FILTER keeps.

    ``columns`` are those of the rows. What the others have there is not looked at.
    """
    if where is None or not may_fail(argument, {column.name: column.type for column in columns}):
        return argument
    mentioned = tuple(sorted({*argument.columns, *where.columns}))
    text = f"CASE WHEN {where.text} THEN {argument.text} END"
    return Expression(text, argument.type, True, mentioned)


def _keeps(narrow: str, wide: str) -> bool:
    """Whether a cast keeps every value, or at least never fails."""
    if wide in ("string", "double", narrow):
        return narrow != "string" or wide == "string"
    if narrow in _WIDTHS and wide in _WIDTHS:
        return _WIDTHS[narrow] <= _WIDTHS[wide]
    found = _DECIMAL.fullmatch(wide)
    if found is None:
        return (narrow, wide) in (("date", "timestamp"), ("date", "timestamp_ntz"))
    digits = int(found[1]) - int(found[2])
    if narrow in _INTEGRAL_DIGITS:
        return digits >= _INTEGRAL_DIGITS[narrow]
    other = _DECIMAL.fullmatch(narrow)
    return other is not None and digits >= int(other[1]) - int(other[2])
