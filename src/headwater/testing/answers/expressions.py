"""Random expressions in PostgreSQL's dialect, each of a wanted type, none of which fails on a row.

    Expressions(random).of("int", scope, depth=2)      "(q1.k + coalesce(q2.y, 3))"

Values stay small and texts stay in the dialect's allow-list: what it refuses is told apart from
what it answers wrongly, and too much of it would leave nothing to compare. What fails on some rows
has a place of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from headwater.testing.answers.world import TYPES, VALUES, Type


@dataclass(frozen=True, slots=True)
class Term:
    """A text and its type."""

    sql: str
    type: Type


Scope = Sequence[Term]

_COMPARED: Final = ("=", "=", "<>", "<", "<=", ">", ">=")
_CAST: Final = {
    "int": "int",
    "bigint": "bigint",
    "numeric": "numeric(20,4)",
    "float": "double precision",
    "text": "text",
    "bool": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "jsonb": "jsonb",
}
WHOLE: Final[tuple[Type, ...]] = ("int", "bigint")
NUMBERS: Final[tuple[Type, ...]] = (*WHOLE, "numeric")
_MOMENTS: Final[tuple[Type, ...]] = ("date", "timestamp", "timestamptz")
_TOLD_APART: Final[tuple[Type, ...]] = ("int", "text", "numeric")
_SHOWN: Final[tuple[Type, ...]] = (*WHOLE, "bool", "date", "timestamp")
_UNITS: Final = ("year", "month", "day", "hour")


class Expressions:
    """Makes expressions; a subclass may know more of them."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def _is(self, chance: float) -> bool:
        return self.random.random() < chance

    def literal(self, type_: Type) -> str:
        """Return a literal, with its type said where its text does not say it."""
        text = self.random.choice(VALUES[type_])
        if type_ in ("int", "bool", "text"):
            return f"({text})" if text.startswith("-") else text
        if type_ == "numeric":
            return f"({text})" if self._is(0.8) else f"cast({text} as numeric(12,4))"
        return f"cast({text} as {_CAST[type_]})" if self._is(0.5) else f"({text})::{_CAST[type_]}"

    def column(self, type_: Type, scope: Scope) -> str | None:
        """Return a column of this type, if there is one."""
        found = [term.sql for term in scope if term.type == type_]
        return self.random.choice(found) if found else None

    def of(self, type_: Type, scope: Scope, depth: int) -> str:
        """Return an expression of this type."""
        column = self.column(type_, scope)
        if column is not None and (depth <= 0 or self._is(0.4)):
            return column
        if depth <= 0:
            return f"cast(NULL as {_CAST[type_]})" if self._is(0.1) else self.literal(type_)
        common: list[Callable[[Type, Scope, int], str]] = [self._case, self._coalesced, self._least]
        own = self._own()[type_]
        if self._is(0.25):
            return self.random.choice(common)(type_, scope, depth - 1)
        return self.random.choice(own)(scope, depth - 1)

    # ---- of any type -----------------------------------------------------------------------

    def _case(self, type_: Type, scope: Scope, depth: int) -> str:
        then, other = self.of(type_, scope, depth), self.of(type_, scope, 0)
        if self._is(0.3):
            asked = self.random.choice(_TOLD_APART)
            value = self.of(asked, scope, 0)
            first, second = self.literal(asked), self.literal(asked)
            return f"CASE {value} WHEN {first} THEN {then} WHEN {second} THEN {other} END"
        closing = f" ELSE {other}" if self._is(0.7) else ""
        return f"CASE WHEN {self.of('bool', scope, depth)} THEN {then}{closing} END"

    def _coalesced(self, type_: Type, scope: Scope, depth: int) -> str:
        if self._is(0.3) and type_ != "jsonb":
            return f"nullif({self.of(type_, scope, depth)}, {self.literal(type_)})"
        return f"coalesce({self.of(type_, scope, depth)}, {self.literal(type_)})"

    def _least(self, type_: Type, scope: Scope, depth: int) -> str:
        if type_ in ("jsonb", "bool"):
            return self._coalesced(type_, scope, depth)
        word = self.random.choice(("least", "greatest"))
        return f"{word}({self.of(type_, scope, depth)}, {self.of(type_, scope, 0)})"

    # ---- of one type -----------------------------------------------------------------------

    def _own(self) -> dict[Type, list[Callable[[Scope, int], str]]]:
        return {
            "int": [self._whole, self._length, self._whole_of_other],
            "bigint": [self._big],
            "numeric": [self._decimal, self._rounded, self._decimal_of_other],
            "float": [self._floating],
            "text": [self._text, self._piece, self._shown],
            "bool": [self._compared, self._compared, self._logical, self._asked, self._listed],
            "date": [self._day],
            "timestamp": [self._moment],
            "timestamptz": [self._instant],
            "jsonb": [lambda scope, _: self.column("jsonb", scope) or self.literal("jsonb")],
        }

    def _whole(self, scope: Scope, depth: int) -> str:
        left, right = self.of("int", scope, depth), self.of("int", scope, 0)
        operator = self.random.choice(("+", "-", "*", "%", "/"))
        if operator in "%/":
            return f"({left} {operator} {self.random.choice((2, 3, -3))})"
        return f"({left} {operator} {right})"

    def _length(self, scope: Scope, depth: int) -> str:
        text = self.of("text", scope, depth)
        return self.random.choice((f"length({text})", f"strpos({text}, 'b')"))

    def _whole_of_other(self, scope: Scope, depth: int) -> str:
        made = (
            lambda: f"abs({self.of('int', scope, depth)})",
            lambda: f"cast({self.of('bool', scope, depth)} as int)",
            lambda: f"cast({self.of('numeric', scope, 0)} as int)",
            lambda: f"({self.of('date', scope, 0)} - {self.of('date', scope, 0)})",
            lambda: f"cast(extract(day from {self.of('date', scope, 0)}) as int)",
        )
        return self.random.choice(made)()

    def _big(self, scope: Scope, depth: int) -> str:
        left = self.of("bigint", scope, 0)
        right = self.of("int", scope, depth)
        made = (f"({left} + {right})", f"({right} - {left})", f"({left} % 7)", f"abs({left})")
        return self.random.choice((*made, f"cast({right} as bigint)"))

    def _decimal(self, scope: Scope, depth: int) -> str:
        left, right = self.of("numeric", scope, min(depth, 1)), self.of("numeric", scope, 0)
        operator = self.random.choice(("+", "-", "*", "/"))
        if operator == "/":
            return f"({self.of('numeric', scope, 0)} / {self.random.choice(('4', '2.5', '3'))})"
        if operator == "*":
            right = self.random.choice(("2", "1.5", self.of("int", scope, 0)))
        return f"({left} {operator} {right})"

    def _rounded(self, scope: Scope, depth: int) -> str:
        value = self.of("numeric", scope, depth)
        made = ("round({0}, 1)", "trunc({0})", "abs({0})", "floor({0})", "ceil({0})", "(- {0})")
        return self.random.choice(made).format(value)

    def _decimal_of_other(self, scope: Scope, depth: int) -> str:
        value = self.of(self.random.choice(WHOLE), scope, depth)
        made = (f"cast({value} as numeric(20,2))", f"({value} * 0.5)", f"({value} + 1.25)")
        return self.random.choice(made)

    def _floating(self, scope: Scope, depth: int) -> str:
        left, right = self.of("float", scope, depth), self.of("float", scope, 0)
        made = (
            f"({left} + {right})",
            f"({left} - {right})",
            f"({left} * 2)",
            f"({left} / 4)",
            f"abs({left})",
            f"cast({self.of('int', scope, 0)} as double precision)",
        )
        return self.random.choice(made)

    def _text(self, scope: Scope, depth: int) -> str:
        left, right = self.of("text", scope, depth), self.of("text", scope, 0)
        made = (
            f"({left} || {right})",
            f"({left} || {self.of('int', scope, 0)})",
            f"concat({left}, {right})",
            f"replace({left}, 'a', {right})",
            f"concat_ws('-', {left}, {right})",
        )
        return self.random.choice(made)

    def _piece(self, scope: Scope, depth: int) -> str:
        text = self.of("text", scope, depth)
        made = (
            "upper({0})",
            "lower({0})",
            "substr({0}, 2)",
            "substring({0}, 1, 1)",
            "left({0}, -1)",
            "right({0}, 2)",
            "trim({0})",
            "reverse({0})",
            "lpad({0}, 3, 'x')",
            "split_part({0}, 'b', 1)",
        )
        return self.random.choice(made).format(text)

    def _shown(self, scope: Scope, depth: int) -> str:
        type_ = self.random.choice(_SHOWN)
        return f"cast({self.of(type_, scope, depth)} as text)"

    def _day(self, scope: Scope, depth: int) -> str:
        day = self.of("date", scope, depth)
        made = (
            f"({day} + {self.of('int', scope, 0)})",
            f"({day} - 1)",
            f"cast({self.of('timestamp', scope, 0)} as date)",
            f"cast(date_trunc('month', {self.of('timestamp', scope, 0)}) as date)",
        )
        return self.random.choice(made)

    def _moment(self, scope: Scope, depth: int) -> str:
        moment = self.of("timestamp", scope, depth)
        made = (
            f"({moment} + interval '1 day')",
            f"({moment} - interval '90 minutes')",
            f"date_trunc('{self.random.choice(_UNITS)}', {moment})",
            f"cast({self.of('date', scope, 0)} as timestamp)",
            f"({self.of('date', scope, 0)} + interval '1 month')",
        )
        return self.random.choice(made)

    def _instant(self, scope: Scope, depth: int) -> str:
        moment = self.of("timestamptz", scope, depth)
        made = (
            f"({moment} + interval '2 hours')",
            f"date_trunc('day', {moment})",
            f"cast({self.of('timestamp', scope, 0)} as timestamptz)",
        )
        return self.random.choice(made)

    # ---- conditions ------------------------------------------------------------------------

    def _compared(self, scope: Scope, depth: int) -> str:
        type_ = self._met(scope)
        left, right = self.of(type_, scope, depth), self.of(self._kin(type_), scope, 0)
        if self._is(0.1):
            word = self.random.choice(("IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
            return f"({left} {word} {right})"
        return f"({left} {self.random.choice(_COMPARED)} {right})"

    def _met(self, scope: Scope) -> Type:
        """Return a type that some column has, mostly."""
        found = [term.type for term in scope if term.type in TYPES]
        return self.random.choice(found) if found and self._is(0.85) else self.random.choice(TYPES)

    def _kin(self, type_: Type) -> Type:
        """Return a type that a value of this one may be compared with."""
        for kin in (NUMBERS, _MOMENTS):
            if type_ in kin and self._is(0.4):
                return self.random.choice(kin)
        return type_

    def _logical(self, scope: Scope, depth: int) -> str:
        left, right = self.of("bool", scope, depth), self.of("bool", scope, depth)
        made = (f"({left} AND {right})", f"({left} OR {right})", f"(NOT {left})")
        return self.random.choice(made)

    def _asked(self, scope: Scope, depth: int) -> str:
        value = self.of(self._met(scope), scope, depth)
        made = [f"({value} IS NULL)", f"({value} IS NOT NULL)"]
        truth = self.random.choice(("TRUE", "FALSE", "UNKNOWN", "NOT TRUE"))
        made.append(f"({self.of('bool', scope, depth)} IS {truth})")
        text = self.of("text", scope, depth)
        like = self.random.choice(("LIKE 'a%'", "LIKE '_'", "NOT LIKE '%b'", "ILIKE 'A%'"))
        made.append(f"({text} {like})")
        return self.random.choice(made)

    def _listed(self, scope: Scope, depth: int) -> str:
        type_ = self._met(scope)
        value = self.of(type_, scope, depth)
        low, high = self.literal(self._kin(type_)), self.literal(type_)
        null = ", NULL" if self._is(0.15) else ""
        made = (
            f"({value} IN ({low}, {high}{null}))",
            f"({value} NOT IN ({low}, {high}))",
            f"({value} BETWEEN {low} AND {high})",
        )
        return self.random.choice(made)
