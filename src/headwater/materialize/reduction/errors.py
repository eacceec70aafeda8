"""Why two documents cannot be reduced: the location and both values, in one class per cause."""

from __future__ import annotations

from headwater.base.errors import InvalidUsage
from headwater.materialize.reduction.value import Json

_SHOWN_MAX = 200


class CannotReduce(InvalidUsage):
    """The root of the causes."""

    reason = "cannot be reduced"

    def __init__(self, pointer: str, left: Json, right: Json) -> None:
        super().__init__(
            f"at {pointer or 'the root'}: {self.reason}; left {_shown(left)}, right {_shown(right)}"
        )
        self.pointer = pointer
        self.left = left
        self.right = right


def _shown(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"


class AppendWrongType(CannotReduce):
    """append of what is no array."""

    reason = "append expects arrays"


class SumWrongType(CannotReduce):
    """sum of what is no number."""

    reason = "sum expects numbers, or strings that hold numbers"


class SumOverflow(CannotReduce):
    """sum beyond what JSON numbers hold."""

    reason = "sum overflows"


class MergeWrongType(CannotReduce):
    """merge of what is neither object nor array."""

    reason = "merge expects objects or arrays"


class NotSorted(CannotReduce):
    """A keyed array that is not sorted, or has a key twice."""

    reason = "arrays with a key must be sorted by it, each key once"


class SetWrongType(CannotReduce):
    """set of what is no set."""

    reason = (
        "set expects objects of add, intersect and remove (not both of the last two), whose "
        "values are all arrays or all objects"
    )


class NotAssociative(CannotReduce):
    """Two updates that can be combined only with the document that they update."""

    reason = "the two can be combined only with what they are reduced into"


class JsonSchemaMergeWrongType(CannotReduce):
    """jsonSchemaMerge of what is no schema."""

    reason = "jsonSchemaMerge expects objects that are valid JSON schemas"
