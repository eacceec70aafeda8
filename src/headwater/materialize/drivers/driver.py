"""The contract between a materialization and its endpoint.

The endpoint is authoritative: the checkpoint (the time up to which everything was delivered) is
stored in it, in the same transaction as the rows. So delivery is exactly once: whatever happens,
rows and checkpoint agree, and the runtime resumes from the checkpoint it finds.

- :meth:`Driver.open` takes the fence: a number in the endpoint, raised by one. Whoever held it
  before can never commit again (a zombie is refused, with :class:`FencedOut`).
- :meth:`Driver.commit` applies one delta and moves the checkpoint, all or nothing.

The skeleton of issue 5's protocol: Spec, Validate and Apply are folded into ``open``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headwater.base.errors import HeadwaterError


@dataclass(frozen=True, slots=True)
class BindingSpec:
    """One collection delivered into one table, a row per key."""

    name: str
    target: str
    schema: pa.Schema
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """What one transaction changes in one binding: keys to remove, then rows to put."""

    binding: BindingSpec
    removed: pa.Table
    """Key columns of the rows that are no longer there."""
    put: pa.Table
    """All columns of the rows that are there now."""


class FencedOut(HeadwaterError):
    """Another instance of the materialization has opened the endpoint after us."""

    def __init__(self, name: str, mine: int, current: int) -> None:
        super().__init__(
            f"materialization {name!r} was opened by another instance: its fence {current} shuts "
            f"out our {mine}; nothing was written"
        )


class Driver(Protocol):
    """One open endpoint of one materialization."""

    def open(self, name: str, bindings: tuple[BindingSpec, ...]) -> int | None:
        """Make the tables, take the fence, return the checkpoint (``None``: never delivered)."""
        ...

    def commit(self, deltas: tuple[Delta, ...], checkpoint: int) -> None:
        """Apply the deltas and move the checkpoint, in one transaction of the endpoint."""
        ...

    def close(self) -> None:
        """Release the endpoint."""
        ...
