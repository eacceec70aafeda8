"""An input of a join while the join is being lowered: as it is stored, or a lane with its keys.

A lane gets the key columns that equalities over expressions ask for, and the filters that are put
below its arrangement; what is stored has neither, since its arrangement is shared.

Relied on by: ``lower_join.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headwater.compute.dataflow.needs import names
from headwater.compute.dataflow.raw import Raw
from headwater.compute.ir.expression import Column, Expression, Named
from headwater.compute.ir.fallible import may_fail
from headwater.compute.ir.node import Node


@dataclass(slots=True)
class Leaf:
    """An input."""

    node: Node
    raw: Raw | None
    """As it is stored; ``None``: a lane."""
    keys: dict[str, Named] = field(default_factory=dict)
    """Of a lane: key columns that are computed, by their text."""
    one: Named | None = None
    """Of a lane: a key of ours that is the same in all rows."""
    kept: list[Expression] = field(default_factory=list)
    """Of a lane: which rows of it."""

    @property
    def columns(self) -> Sequence[Column]:
        """Those of the plan; keys that are computed are not among them."""
        return self.raw.scan.columns if self.raw is not None else self.node.columns

    def type_of(self, name: str) -> str:
        """Return the type of a column, or of a key that is computed."""
        found = {column.name: column.type for column in self.columns}
        found.update((key.name, key.expression.type) for key in self.computed())
        return found[name]

    def key_may_fail(self) -> bool:
        """Whether it does on a row: no filter after the join may keep that row from it."""
        types = {column.name: column.type for column in self.columns}
        return any(may_fail(key.expression, types) for key in self.keys.values())

    def key_order(self) -> list[str]:
        """Return the columns in the order of a key: by field, so that views agree on it."""
        if self.raw is not None:
            ordered = sorted(self.raw.scan.fields, key=lambda f: f.field)
            return [f.column.name for f in ordered]
        return [*names(self.node), *(key.name for key in self.computed())]

    def computed(self) -> list[Named]:
        """Return the key columns that a lane gets."""
        return [*self.keys.values(), *([] if self.one is None else [self.one])]
