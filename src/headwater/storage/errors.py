"""What can go wrong with a source, sorted by what the ingestion does about it.

- :class:`TransientError`: the network, a password, a server that restarts. It never becomes data:
  the source *stalls* visibly, is tried again with backoff, and goes on where it was.
- :class:`DefiniteError`: it happened at a place in the source and will be there for ever (a file
  shrank, a slot was advanced past us). Reading again finds it again; the source *fails* with the
  remedy in its status, nothing durable is lost, and other sources go on.
- :class:`InvalidUsage` of ``base``: a mistake of the caller, refused before anything happens.

A record that cannot be decoded is none of these: it is data (``storage/dead_letters.py``).
"""

from __future__ import annotations

from headwater.base.errors import HeadwaterError, InvalidUsage


class TransientError(HeadwaterError):
    """Upstream cannot be reached or does not answer, now. Trying again may help."""

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"source {source!r}: {why}")
        self.source = source
        self.why = why

    @property
    def told(self) -> str:
        """What it says where the source is named beside it, by the name that its owner gave it."""
        return self.why


class DefiniteError(HeadwaterError):
    """Upstream cannot give what it promised to keep. Trying again finds the same."""

    def __init__(self, source: str, why: str, remedy: str) -> None:
        super().__init__(f"source {source!r}: {why}; {remedy}")
        self.source = source
        self.why = why
        self.remedy = remedy

    @property
    def told(self) -> str:
        """What it says where the source is named beside it, by the name that its owner gave it."""
        return f"{self.why}; {self.remedy}"


class UpstreamRegressed(DefiniteError):
    """A probe reports less than an earlier one: recreated, restored, truncated."""

    def __init__(self, source: str, partition: str, was: int, now: int) -> None:
        super().__init__(
            source,
            f"partition {partition!r} was at offset {was} and is at {now} now",
            "it was recreated or restored upstream: drop the source and create it again",
        )
        self.partition = partition


class CompactedBinding(InvalidUsage):
    """The answer lay before the since of remap: other times of it can no longer be told apart."""

    def __init__(self, what: str, since: int) -> None:
        super().__init__(f"{what} lies in the part of remap that was compacted to time {since}")
        self.since = since


class BrokenRemap(HeadwaterError):
    """A remap collection does not say one monotone frontier per time; somebody else wrote it."""


class BrokenOutput(HeadwaterError):
    """The output of an upsert has several rows for one key; somebody else wrote it."""

    def __init__(self, collection: str, key: object) -> None:
        super().__init__(
            f"collection {collection!r} has several rows for the key {key}; "
            "drop the source and create it again, and let nobody else write it"
        )
