"""Field selection: whether a driver's constraints permit the fields that a binding delivers.

A driver answers Validate with constraints per field, each with its reason. A binding of ours
delivers all its fields or is refused: a column that was silently left out would be a wrong answer.

- A field that is forbidden or incompatible is refused, with the driver's reason; so is one for
  which the driver has no word, because then it is forbidden by omission.
- A field that is required and not there is refused, with the reason: it may even be one that the
  collection lacks (a column of the table that must not be NULL).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headwater.base.errors import InvalidUsage
from headwater.materialize.protocol.messages import ValidatedBinding
from headwater.materialize.protocol.specs import Constraint, ConstraintType

_REFUSED: Final = frozenset(
    {
        ConstraintType.INVALID,
        ConstraintType.FIELD_FORBIDDEN,
        ConstraintType.INCOMPATIBLE,
        ConstraintType.UNSATISFIABLE,
    }
)


class FieldRefused(InvalidUsage):
    """Fields that the endpoint cannot take as they are, with the reasons."""

    def __init__(self, binding: str, resource: Sequence[str], reasons: Sequence[str]) -> None:
        super().__init__(
            f"binding {binding!r} cannot be delivered into {'.'.join(resource)!r}: "
            f"{'; '.join(reasons)}"
        )


def constraints_of(answer: ValidatedBinding) -> tuple[tuple[str, Constraint], ...]:
    """Return a driver's constraints; the newer list counts where it is given."""
    if answer.projection_constraints:
        return tuple((p.field, p.constraint or Constraint()) for p in answer.projection_constraints)
    return answer.constraints


def check_selected(binding: str, fields: Sequence[str], answer: ValidatedBinding) -> None:
    """Refuse a binding whose fields the driver does not take."""
    reasons = list(_reasons(fields, constraints_of(answer)))
    if reasons:
        raise FieldRefused(binding, answer.resource_path, reasons)


def _reasons(fields: Sequence[str], constraints: Sequence[tuple[str, Constraint]]) -> Iterator[str]:
    named = {field for field, _ in constraints}
    for field in fields:
        if field not in named:
            yield f"column {field!r} is not taken by the endpoint"
    for field, constraint in constraints:
        if constraint.type in _REFUSED and field in fields:
            yield f"column {field!r}: {constraint.reason}"
        if constraint.type is ConstraintType.FIELD_REQUIRED and field not in fields:
            yield f"column {field!r} is required: {constraint.reason}"
