"""What an ingestion keeps: the outputs of a source, remap and dead letters, and who holds them.

Names and values alone; :mod:`headwater.storage.ingestion` fills them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headwater.base.ids import RoleName
from headwater.storage.envelope import Envelope
from headwater.storage.keyed_changes import Keyed
from headwater.storage.offsets import NOTHING, Offsets

HOLD: Final = "ingestion"
"""The read capability on each output, and on a remap that somebody else compacts: what it had just
before its upper must stay readable, for an upsert to look its keys up, for a truncation to retract
it, and for a restart to know where to go on."""


BOUND: Final = "bound, not appended yet"
"""The write capability on each output and the dead letters between the two entries of a tick."""


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a source: the name the source gives it, its collection and its envelope."""

    name: str
    collection: str
    envelope: Envelope | Keyed


@dataclass(frozen=True, slots=True)
class Definition:
    """What an ingestion is: the outputs of a source, and the names of what is kept beside them."""

    name: str
    outputs: tuple[Output, ...]

    @property
    def role(self) -> RoleName:
        """Who writes all this."""
        return RoleName(f"ingest/{self.name}")

    @property
    def remap(self) -> str:
        """The collection of bindings."""
        return f"{self.name}/remap"

    @property
    def dead_letters(self) -> str:
        """The collection of records that could not be decoded."""
        return f"{self.name}/dead_letters"


def hold_of(definition: Definition) -> str:
    """Return the id of the read capability on each output."""
    return f"{definition.role}/{HOLD}"


def bound_by(definition: Definition) -> str:
    """Return the id of the write capability that keeps outputs from following the timeline."""
    return f"{definition.role}/bound"


@dataclass(slots=True)
class Statistics:
    """Counters since the start of this ingestion, and where it is."""

    messages: int = 0
    bytes: int = 0
    updates: int = 0
    dead_letters: int = 0
    snapshot_known: int | None = None
    """About how many records were upstream when the source was first read; NULL: nobody asked."""
    snapshot_staged: int = 0
    """How many of them were read in this process."""
    snapshot_committed: bool = False
    """Whether all of them are durable."""
    offsets_known: Offsets = NOTHING
    offsets_committed: Offsets = NOTHING
    races_lost: int = 0

    def go_on_from(self, before: Statistics) -> None:
        """Count on from what an ingestion of the same source counted in this process."""
        self.messages += before.messages
        self.bytes += before.bytes
        self.updates += before.updates
        self.dead_letters += before.dead_letters
        self.races_lost += before.races_lost
        if self.snapshot_committed:  # Otherwise it is read again, from its beginning.
            self.snapshot_known = before.snapshot_known
            self.snapshot_staged = before.snapshot_staged

    @property
    def lag(self) -> int:
        """How many offsets are known upstream and not durable here."""
        known, durable = self.offsets_known, self.offsets_committed
        return sum(max(0, offset - durable[p]) for p, offset in known.items())
