"""What is stored of a view of any kind: a plan over relations, since a time, into an output.

The kinds (``compute/definition.py``) add what they need to keep it. Stored by the names of its
fields, so their order is nobody's concern; a field is never given another meaning.

Kept by: this module. Relied on by: ``compute/maintained.py``, ``compute/recompute.py``.
"""

from __future__ import annotations

import msgspec

from headwater.base.ids import Epoch, GlobalId
from headwater.collection.commands import VIEW_PREFIX


class StoredView(msgspec.Struct, frozen=True, kw_only=True):
    """A view as it is stored."""

    version: int
    name: str
    sql: str
    plan: bytes
    relations: dict[str, GlobalId]
    """The collections, by the names the plan has for them."""
    start: int
    output: GlobalId
    spark_version: str
    given: bool = False
    """Whether the output is a collection of the caller's, which stays when the view goes."""
    kept_by: Epoch | None = None
    """Of what is not durable: the epoch of the process that keeps it."""

    @property
    def id(self) -> GlobalId:
        """The id of the view is that of its output."""
        return self.output

    @property
    def inputs(self) -> tuple[GlobalId, ...]:
        """What it reads, each once."""
        return tuple(dict.fromkeys(self.relations.values()))

    @property
    def owned(self) -> tuple[GlobalId, ...]:
        """What goes with it."""
        return () if self.given else (self.output,)

    @property
    def reader_id(self) -> str:
        """The name of the view's holds."""
        return f"{VIEW_PREFIX}{self.id}"
