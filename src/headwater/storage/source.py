"""The port to a source: three methods and a promise.

    probe()             ->  how far upstream is
    read(lower, upper)  ->  exactly the records of [lower, upper), in batches
    commit(offsets)     ->  upstream may forget what is before them

**The promise** (``tests/unit/storage/conformance.py`` tests it of every source):

- *definite*: ``read`` of a range gives the same records at the same places whenever it is asked,
  until the range was committed; in one piece, or cut where some probe was in each partition;
- *complete*: what a probe has reported can be read; a later probe is never behind an earlier one;
- *atomic*: records that belong together (a transaction) have one place. Whoever stops reads all of
  a place or nothing of it;
- *nothing is forgotten unasked*: from ``commit`` on, and not before, upstream may drop the range.
  ``commit`` is a permission, repeated at will, never relied on: a restart asks our own frontiers.

How much of upstream we need to keep is declared as :class:`Reliance`, for the documentation and
the system views.

What a source hands over is a :class:`Records` batch: the place of each record, and either raw
messages (:data:`MESSAGE`: a key and a value, bytes, for a format and an envelope) or rows with
diffs where upstream has them already. Reading may happen in tasks elsewhere: a source that is
:class:`Divisible` cuts a large range into pieces, each read by a process that has nothing but a
copy of the source (``storage/tasks.py``). What is small is read where it is asked for.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa

from headwater.storage.offsets import Offsets

PARTITION: Final = "__partition"
OFFSET: Final = "__offset"
PLACE: Final = pa.schema(
    [
        pa.field(PARTITION, pa.string(), nullable=False),
        pa.field(OFFSET, pa.int64(), nullable=False),
    ]
)
"""Where each record is; the first columns of every batch."""

MESSAGE: Final = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())])
"""The payload of a raw record, either of them NULL."""

TIMESTAMP: Final = "timestamp"
HEADERS: Final = "headers"
"""More of a raw record, where its source was asked for it: when it was made (UTC), and what was
written on it (a list of ``key`` and ``value``)."""


class Reliance(enum.Enum):
    """What we need upstream to keep for us."""

    BOUNDED = "bounded"
    """Only what is not durable here yet; it is told what that is."""
    RETAINED = "retained upstream"
    """It keeps history by its own rules (a retention, files that stay), and we tell it nothing; as
    long as it keeps what is not durable here yet, nothing is lost."""
    NONE = "none"
    """It can be made again from its definition."""


@dataclass(frozen=True, slots=True)
class Records:
    """Some records of one output of a source: their places, then their payload.

    ``clears`` (of rows): everything that the output has, from before the range and from what was
    handed over of it before this, goes at this place. Only the output knows what that is.
    """

    output: str
    table: pa.Table
    clears: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A range that can be read apart from others, and about how many messages are in it."""

    lower: Offsets
    upper: Offsets
    messages: int


@runtime_checkable
class Divisible(Protocol):
    """A source whose ranges can be read in pieces, by other processes that are given it."""

    def pieces(self, lower: Offsets, upper: Offsets) -> list[Piece]:
        """Return pieces that together are exactly ``[lower, upper)``."""
        ...


@runtime_checkable
class Estimated(Protocol):
    """A source that knows about how much there is, for whoever waits for its snapshot."""

    def estimate(self, upper: Offsets) -> int:
        """Return about how many records there are before ``upper``."""
        ...


@runtime_checkable
class Momentary(Protocol):
    """A source whose first contents can be read only as they are at its last probe.

    Whoever bound an earlier one and died before its contents were durable probes, and binds, again.
    """

    def has(self, upper: Offsets) -> bool:
        """Whether ``[nothing, upper)`` can be read."""
        ...


class Source(Protocol):
    """Something outside that can be read from any place on."""

    @property
    def name(self) -> str:
        """Used in errors and in status."""
        ...

    @property
    def reliance(self) -> Reliance:
        """What it needs to keep."""
        ...

    def probe(self) -> Offsets:
        """Return a frontier before which everything is there, and can be read."""
        ...

    def read(self, lower: Offsets, upper: Offsets) -> Iterator[Records]:
        """Return exactly the records beyond ``lower`` and not beyond ``upper``."""
        ...

    def commit(self, offsets: Offsets) -> None:
        """Allow upstream to forget what is before ``offsets``."""
        ...

    def close(self) -> None:
        """Release connections; reads nothing and forgets nothing."""
        ...
