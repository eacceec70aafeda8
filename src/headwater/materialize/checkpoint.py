"""The runtime's checkpoint: one time common to all bindings, and how far a snapshot got.

Checkpoint ``c``: everything at times before ``c`` has been delivered, for all bindings alike.
While the first snapshot is delivered in pieces, ``snapshot`` holds for each binding the last
packed key that is in the endpoint; what is at or below it is there as of ``c - 1``. An empty
``snapshot`` is a whole one.

On the wire it is Flow's ``consumer.Checkpoint``, because that is what endpoints keep and connectors
pass on without looking: one source per materialization, read through ``c``, and one acknowledgement
intent per binding of an unfinished snapshot.

Kept by:        the runtime, which alone makes and reads it.
Relied on by:   every driver, to give back what it was given: bytes, not meaning.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final

from headwater.base.errors import HeadwaterError
from headwater.materialize.protocol.specs import Checkpoint, CheckpointSource
from headwater.materialize.wire.protobuf import MalformedMessage, decode_value, encode_value

_SOURCE: Final = "headwater;materialize/"
_SNAPSHOT: Final = "headwater;snapshot/"
_BACKFILL: Final = re.compile(r"(.*)\.v([0-9]+)", re.DOTALL)


class ForeignCheckpoint(HeadwaterError):
    """A checkpoint that another runtime, or another materialization, left in the endpoint."""

    def __init__(self, materialization: str, found: object) -> None:
        super().__init__(
            f"the endpoint holds a checkpoint that is not of materialization {materialization!r}: "
            f"{found}; deliver into other tables, or remove the checkpoint to begin anew"
        )


@dataclass(frozen=True, slots=True)
class Position:
    """Where a materialization stands."""

    time: int
    snapshot: tuple[tuple[str, bytes], ...] = ()
    """Last packed key by state key of the binding, ascending; empty once the snapshot is whole."""

    def to_checkpoint(self, materialization: str) -> Checkpoint:
        """Return what is handed to the driver."""
        return Checkpoint(
            sources=((_SOURCE + materialization, CheckpointSource(self.time)),),
            ack_intents=tuple((_SNAPSHOT + key, packed) for key, packed in self.snapshot),
        )


def from_checkpoint(checkpoint: Checkpoint, materialization: str) -> Position | None:
    """Return the position of a checkpoint; ``None`` if it says to begin at the beginning.

    That it also says if it is of a former backfill: ``name`` before ``name.v1`` before ``name.v2``.
    """
    if not checkpoint.sources and not checkpoint.ack_intents:
        return None
    names = [name for name, _ in checkpoint.sources]
    if len(names) == 1 and _is_former(names[0], _SOURCE + materialization):
        return None
    if names != [_SOURCE + materialization]:
        raise ForeignCheckpoint(materialization, names)
    strangers = [n for n, _ in checkpoint.ack_intents if not n.startswith(_SNAPSHOT)]
    if strangers:
        raise ForeignCheckpoint(materialization, strangers)
    return Position(
        checkpoint.sources[0][1].read_through,
        tuple((n.removeprefix(_SNAPSHOT), packed) for n, packed in checkpoint.ack_intents),
    )


def _is_former(found: str, expected: str) -> bool:
    (name, backfill), (ours, now) = _backfill(found), _backfill(expected)
    return name == ours and backfill < now


def _backfill(source: str) -> tuple[str, int]:
    found = _BACKFILL.fullmatch(source)
    return (source, 0) if found is None else (found[1], int(found[2]))


def to_text(checkpoint: Checkpoint) -> str:
    """Return a checkpoint as an endpoint keeps it: base64 of its protobuf."""
    return base64.b64encode(encode_value(checkpoint)).decode()


def from_text(text: str) -> Checkpoint:
    """Return the checkpoint that an endpoint kept."""
    try:
        checkpoint: Checkpoint = decode_value(base64.b64decode(text, validate=True), Checkpoint)
    except (binascii.Error, MalformedMessage) as error:
        raise HeadwaterError(f"the endpoint holds no checkpoint but {text[:80]!r}") from error
    return checkpoint
