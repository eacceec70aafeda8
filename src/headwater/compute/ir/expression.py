"""What stands in the operators of a plan: columns, expressions, calls, sort keys.

An expression is Spark SQL text over the columns of its operator's input. Names are unique in a
plan (``l_orderkey_1``): letters, digits and underscores in lower case, ending in ``_`` and a
number, so that no name is a word of the language and none needs quotes. The text has been read
back and compared with what Catalyst meant (``compute/catalyst``), so it may be trusted wherever the
session's meaning is the plan's. ``columns`` are the names it mentions: what an operator needs is
known without parsing.

Types are Spark's own texts (``decimal(12,2)``). Every column that is shown has one of the types of
``collection/types.py``. Expressions, and columns between operators, may pass through others that
are Spark's alone (``variant``, an interval of months): such columns have no :attr:`Column.sql_type`
and no rule, so that their query is recomputed.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from headwater.collection.types import SqlType, UnsupportedType, by_spark
from headwater.compute.ir.refusal import InvalidPlan

NAME: Final = re.compile(r"[a-z_][a-z0-9_]*_[0-9]+")
BOOLEAN: Final = "boolean"

Comparison = Literal["=", "<=>", "=?"]
"""Of two keys: equal; equal or both NULL; equal or unknown (``NOT IN``)."""


def is_foreign(type_: str) -> bool:
    """Whether a type is Spark's alone: nothing of it can be stored.

    >>> is_foreign("interval month"), is_foreign("array<int>")
    (True, False)
    """
    try:
        by_spark(type_)
    except UnsupportedType:
        return True
    return False


class Column(msgspec.Struct, frozen=True):
    """A column of an operator's output."""

    name: str
    type: str
    nullable: bool

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InvalidPlan(f"{self.name!r} is no column name")

    @property
    def sql_type(self) -> SqlType:
        """The type as ours; raises ``UnsupportedType`` if it is Spark's alone."""
        return by_spark(self.type)

    @property
    def is_foreign(self) -> bool:
        """Whether its type is Spark's alone."""
        return is_foreign(self.type)


class Field(msgspec.Struct, frozen=True):
    """A column of a stored collection (``field``), and what the plan calls it."""

    field: str
    column: Column


class Expression(msgspec.Struct, frozen=True):
    """Text over columns, and what it yields."""

    text: str
    type: str
    nullable: bool
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise InvalidPlan("an expression without a text")

    @property
    def is_column(self) -> bool:
        """Whether it is nothing but a column."""
        return self.columns == (self.text,)


class Named(msgspec.Struct, frozen=True):
    """An expression and the column it makes."""

    name: str
    expression: Expression

    def __post_init__(self) -> None:
        _ = self.column

    @property
    def column(self) -> Column:
        """The column it makes."""
        return Column(self.name, self.expression.type, self.expression.nullable)


class SortKey(msgspec.Struct, frozen=True):
    """One key of an order."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = True

    @property
    def text(self) -> str:
        """As ``ORDER BY`` takes it."""
        direction = "DESC" if self.descending else "ASC"
        nulls = "FIRST" if self.nulls_first else "LAST"
        return f"{self.expression.text} {direction} NULLS {nulls}"


_DIRECTION: Final = re.compile(r" (?:ASC|DESC) NULLS (?:FIRST|LAST)$")


def undirected(argument: Expression) -> tuple[Expression, str]:
    """Return the value of an argument of ``WITHIN GROUP (ORDER BY …)``, and how it is ordered.

    Any other argument is its value, with nothing behind it.
    """
    found = _DIRECTION.search(argument.text)
    if found is None:
        return argument, ""
    text = argument.text[: found.start()]
    return Expression(text, argument.type, argument.nullable, argument.columns), found[0]


class JoinKey(msgspec.Struct, frozen=True):
    """An expression of each side, compared; the other conditions of a join are its residual."""

    left: Expression
    right: Expression
    comparison: Comparison = "="

    @property
    def text(self) -> str:
        """The condition in Spark SQL."""
        left, right = self.left.text, self.right.text
        match self.comparison:
            case "=" | "<=>":
                return f"({left} {self.comparison} {right})"
            case "=?":
                # Spark knows this very form and has a join of its own for it.
                return f"(({left} = {right}) OR (({left} = {right}) IS NULL))"


class AggregateCall(msgspec.Struct, frozen=True):
    """A call of an aggregate function; ``text`` is all of it, the other fields its parts."""

    name: str
    function: str
    text: str
    type: str
    nullable: bool
    columns: tuple[str, ...] = ()
    arguments: tuple[Expression, ...] = ()
    distinct: bool = False
    ignore_nulls: bool = False
    filter: Expression | None = None

    def __post_init__(self) -> None:
        _ = self.column

    @property
    def column(self) -> Column:
        """The column it makes."""
        return Column(self.name, self.type, self.nullable)


class WindowCall(msgspec.Struct, frozen=True):
    """A function over a window; partition and order are the operator's, the frame its own."""

    name: str
    function: str
    text: str
    """The call alone, before ``OVER``."""
    frame: str
    """``ROWS …`` or ``RANGE …``."""
    type: str
    nullable: bool
    columns: tuple[str, ...] = ()
    arguments: tuple[Expression, ...] = ()
    ignore_nulls: bool = False
    filter: Expression | None = None

    def __post_init__(self) -> None:
        _ = self.column

    @property
    def column(self) -> Column:
        """The column it makes."""
        return Column(self.name, self.type, self.nullable)
