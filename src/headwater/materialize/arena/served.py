"""The driver's end of the arena protocol: a driver of the core, as if it spoke arenas.

    Open       ─▶ Open, Acknowledge          Opened ─▶ Opened
    Load       ─▶ Load of each key
    Prepare    ─▶ Flush                      Loaded ─▶ Loaded, Flushed ─▶ Prepared
    Store      ─▶ Store of each document
    Commit     ─▶ StartCommit, Acknowledge   StartedCommit and Acknowledged ─▶ Committed

The checkpoint of Prepare waits for StartCommit. Which message may follow which is the core's own
table; a Commit before its Prepare, say, is refused by it.

There is no way to say a state after the Stores: a driver that then wants to remember something
(which files it staged) cannot be served, and is refused before anything of it can be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.base.errors import InvalidUsage
from headwater.materialize.arena import messages as a
from headwater.materialize.arena.slices import Arena, taken
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.key_range import KEY_HASH_MAX
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import Checkpoint, ConnectorState, RangeSpec
from headwater.materialize.transport.served import Served
from headwater.materialize.wire.framing import Codec
from headwater.materialize.wire.protobuf import MalformedMessage, decode_value, encode_value

LOADED_BYTES: Final = 1 << 20
"""About how large the arena of a Loaded gets."""


class StatesTooLate(InvalidUsage):
    """A driver that can only say after the Stores what it must remember."""

    def __init__(self) -> None:
        super().__init__(
            "this driver stages what it stores and names it afterwards, for which the arena "
            "protocol has no message; use protocol 3032023 (materialize.Connector)"
        )


class ArenaServed:
    """One stream, as its driver's side sees it."""

    def __init__(self, driver: Responder) -> None:
        self._core = Served(driver, Codec.PROTOBUF)
        self._checkpoint = Checkpoint()

    def respond(self, request: a.Request) -> Iterator[a.Response]:
        """Act upon a request; yield the responses to it."""
        match request:
            case a.Open():
                yield from self._open(request)
            case a.Load():
                for key in taken(request.arena, request.packed_keys):
                    # A driver may answer at once; it waits until Prepare all the same.
                    yield from _loaded(self._core.respond(m.Load(request.binding, key_packed=key)))
            case a.Prepare():
                self._checkpoint = decode_value(request.flow_checkpoint, Checkpoint)
                yield from self._prepare()
            case a.Store():
                self._store(request)
            case a.Commit():
                self._commit()
                yield a.Committed()

    def end(self) -> None:
        """Take notice that the runtime has ended its stream."""
        self._core.end()

    def _open(self, request: a.Open) -> Iterator[a.Response]:
        opening = m.Open(
            request.materialization,
            request.version,
            RangeSpec(request.key_begin, request.key_end, 0, KEY_HASH_MAX),
            request.driver_checkpoint_json,
        )
        for response in self._core.respond(opening):
            if isinstance(response, m.Opened):
                checkpoint = response.runtime_checkpoint
                yield a.Opened(b"" if checkpoint is None else encode_value(checkpoint))
        # What a session before us left is applied now; a runtime of this protocol never says so.
        list(self._core.respond(m.Acknowledge()))

    def _prepare(self) -> Iterator[a.Response]:
        responses = list(self._core.respond(m.Flush()))
        yield from _loaded(iter(responses))
        for response in responses:
            if isinstance(response, m.Flushed):
                state = response.state or ConnectorState(b"{}", merge_patch=True)
                yield a.DriverCheckpoint(state.updated_json, state.merge_patch)

    def _store(self, request: a.Store) -> None:
        keys = taken(request.arena, request.packed_keys)
        values = taken(request.arena, request.packed_values)
        documents = taken(request.arena, request.docs_json)
        if not len(keys) == len(values) == len(documents) == len(request.exists):
            raise MalformedMessage("a Store with another number of keys, values, documents, flags")
        for key, value, document, exists in zip(
            keys, values, documents, request.exists, strict=True
        ):
            store = m.Store(
                request.binding,
                key_packed=key,
                values_packed=value,
                doc_json=document,
                exists=exists,
            )
            list(self._core.respond(store))

    def _commit(self) -> None:
        for response in self._core.respond(m.StartCommit(self._checkpoint)):
            if isinstance(response, m.StartedCommit) and response.state is not None:
                raise StatesTooLate
        list(self._core.respond(m.Acknowledge()))


def _loaded(responses: Iterator[m.Message]) -> Iterator[a.Loaded]:
    """Yield the documents among responses, many at a time."""
    binding, arena, slices = 0, Arena(), list[a.Slice]()
    for response in responses:
        if not isinstance(response, m.Loaded):
            continue
        full = bool(slices) and slices[-1].end > LOADED_BYTES
        if slices and (full or response.binding != binding):
            yield a.Loaded(binding, arena.content, tuple(slices))
            arena, slices = Arena(), []
        binding = response.binding
        slices += arena.add([response.doc_json])
    if slices:
        yield a.Loaded(binding, arena.content, tuple(slices))
