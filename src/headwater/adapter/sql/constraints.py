"""Constraints of a table that we do not keep: refused, each with what to do instead.

Kept are NOT NULL, DEFAULT and PRIMARY KEY (``sql/parse.py``). A constraint that was taken and not
kept would be a promise broken, so none is passed over.
"""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

from headwater.adapter.errors import Unsupported

NUMBERED: Final = "Write the numbers, or let a text column have DEFAULT gen_random_uuid()."
UNCHANGED: Final = "Make another table, INSERT INTO it … SELECT from this one, and rename both."

_INSTEAD: Final[tuple[tuple[type, str], ...]] = (
    (exp.CheckColumnConstraint, "Leave it out, and let a view select the rows that are right."),
    (exp.UniqueColumnConstraint, "Make it the PRIMARY KEY, or leave it out."),
    (exp.Reference, "Leave it out: rows are not checked against another table's."),
    (exp.ForeignKey, "Leave it out: rows are not checked against another table's."),
    (exp.GeneratedAsIdentityColumnConstraint, NUMBERED),
)


def refused(constraint: Any) -> Unsupported:
    """The refusal of a constraint, of a column or of the table."""
    inner = constraint.expressions[0] if isinstance(constraint, exp.Constraint) else constraint
    kind = inner.kind if isinstance(inner, exp.ColumnConstraint) else inner
    hint = next((hint for type_, hint in _INSTEAD if isinstance(kind, type_)), None)
    where = "column " if isinstance(constraint, exp.ColumnConstraint) else ""
    return Unsupported(f"the {where}constraint {constraint.sql(dialect='postgres')}", hint=hint)


def primary_key(part: Any) -> Any | None:
    """The PRIMARY KEY that ``part`` of a table's list is, with a name of its own or without."""
    if isinstance(part, exp.Constraint) and len(part.expressions) == 1:
        part = part.expressions[0]
    return part if isinstance(part, exp.PrimaryKey) else None
