"""The runtime's end of the arena protocol: a stream of the core to a driver that speaks arenas.

    Open          ─▶ Open                   Opened ─▶ Opened, Acknowledged
    Acknowledge   ─▶ (nothing)
    Load          ─▶ Load, many at a time   Loaded ─▶ Loaded
    Flush         ─▶ Prepare                Prepared ─▶ Flushed
    Store         ─▶ Store, many at a time
    StartCommit   ─▶ Commit                 Committed ─▶ (StartedCommit,) Acknowledged

A driver that is authoritative, which said a checkpoint in Opened, has its commit under way as soon
as it was told to: StartedCommit is said at once, and the next transaction is filled meanwhile. If
the commit fails, the driver's older checkpoint is where the next session begins. Of any other
driver nothing is known before Committed, and StartedCommit waits for it; so the recovery log never
says that something was stored which was not. The driver's state is what Prepared said.

A driver may evaluate a Load before it has committed, so keys of the transaction in hand are not
loaded until Committed: their documents are kept (:class:`_Previous`), and answered from here.

What the protocol cannot say is refused: it has no word for a deleted document. A materialization
into such a driver marks deletions (``_meta/op``), and stores what it has marked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

import grpc
import msgspec
import pyarrow.compute as pc

from headwater.base.errors import InvalidUsage
from headwater.materialize.arena import messages as a
from headwater.materialize.arena.slices import Arena, taken
from headwater.materialize.arena.tables import REQUEST, RESPONSE
from headwater.materialize.arena.unary import METHODS, answer_from_arena, to_arena
from headwater.materialize.documents import to_documents
from headwater.materialize.drivers.columns import columns_of, json_fields
from headwater.materialize.drivers.responder import NotServed
from headwater.materialize.projections import OP
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.contents import Contents
from headwater.materialize.protocol.machine import Session, Side
from headwater.materialize.protocol.specs import (
    BindingSpec,
    Checkpoint,
    ConnectorState,
    RangeSpec,
)
from headwater.materialize.transport.grpc_call import RECEIVE_SECONDS, Call, connect, failed
from headwater.materialize.transport.tls import ClientTls
from headwater.materialize.wire.protobuf import (
    MalformedMessage,
    decode_in,
    decode_value,
    encode_in,
    encode_value,
)
from headwater.materialize.wire.runs import packed_values

TRANSACTIONS = "/materialize.Driver/Transactions"


class CannotDelete(InvalidUsage):
    """A deletion, which the arena protocol has no word for."""

    def __init__(self) -> None:
        super().__init__(
            "the arena protocol cannot delete a document; deliver with soft deletes, which mark it"
        )


class _Previous:
    """The documents of the transaction that is being committed."""

    def __init__(self) -> None:
        self._stores: list[tuple[m.StoreMany, Collection[str]]] = []
        self._by_key: dict[tuple[int, bytes], bytes] = {}

    def keep(self, store: m.StoreMany, json: Collection[str]) -> None:
        self._stores.append((store, json))

    def clear(self) -> None:
        self._stores.clear()
        self._by_key.clear()

    def known(self, binding: int, keys: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Return the documents of the keys that were stored, and the keys that were not."""
        for store, json in self._stores:
            documents = map(msgspec.json.encode, to_documents(store.rows, json))
            numbered = ((store.binding, key) for key in store.keys_packed.to_pylist())
            self._by_key.update(zip(numbered, documents, strict=True))
        self._stores.clear()
        found = [self._by_key[binding, key] for key in keys if (binding, key) in self._by_key]
        return found, [key for key in keys if (binding, key) not in self._by_key]


class ArenaStream:
    """The runtime's end of a stream to a driver of the arena protocol."""

    def __init__(
        self,
        address: str,
        receive_seconds: float = RECEIVE_SECONDS,
        tls: ClientTls | None = None,
    ) -> None:
        self._address = address
        self._receive_seconds = receive_seconds
        self._session = Session(Side.RUNTIME)
        self._contents = Contents(())
        self._channel = connect(address, tls)
        self._call: Call[a.Response] | None = None
        self._bindings: tuple[BindingSpec, ...] = ()
        self._said: deque[m.Response] = deque()
        """What the driver has said, as the core hears it."""
        self._early: list[m.Loaded] = []
        """Documents that may be said only after Acknowledged, or with the answer to Flush."""
        self._previous = _Previous()
        self._committing = False
        self._authoritative = False
        self._prepared = b""
        self._state: ConnectorState | None = None

    def send(self, request: m.Request) -> None:
        """Say something to the driver."""
        self._session = self._session.sending(request)
        if isinstance(request, m.Open) and request.materialization is not None:
            self._bindings = request.materialization.bindings
            self._contents = Contents([binding.delta_updates for binding in self._bindings])
        self._contents.check(request)
        match request:
            case m.Spec() | m.Validate() | m.Apply():
                self._said.append(self._ask(request))
            case m.Open():
                self._open(request)
            case m.Acknowledge():
                pass  # It has no word for it; Committed said what there is to say.
            case m.LoadMany():
                self._load(request)
            case m.Flush():
                assert request.runtime_checkpoint is not None
                self._prepared = encode_value(request.runtime_checkpoint)
                self._tell(a.Prepare(self._prepared))
            case m.StoreMany():
                self._store(request)
            case m.StartCommit():
                self._commit(request.runtime_checkpoint or Checkpoint())
            case m.Load() | m.Store():
                raise NotServed(request)

    def receive(self) -> m.Response:
        """Wait for what the driver says next."""
        while not self._said:
            assert self._call is not None
            heard = self._call.receive(self._session.phase.value, self._receive_seconds)
            self._said.extend(self._heard(heard))
        said = self._said.popleft()
        self._session = self._session.received(said)
        self._contents.check(said)
        return said

    def end(self) -> None:
        """End the stream where the protocol permits it."""
        self._session = self._session.ending()
        try:
            if self._call is not None:
                self._call.end()
        finally:
            self._channel.close()

    def abort(self) -> None:
        """Break the call off."""
        if self._call is not None:
            self._call.cancel()
        self._channel.close()

    # What is said.

    def _ask(self, request: m.Unary) -> m.UnaryResponse:
        method, _, answer = METHODS[type(request)]
        try:
            said = self._channel.unary_unary(method)(
                encode_value(to_arena(request)), timeout=self._receive_seconds
            )
        except grpc.RpcError as error:
            raise failed(self._address, error) from error
        return answer_from_arena(decode_value(said, answer))

    def _tell(self, request: a.Request) -> None:
        assert self._call is not None
        self._call.send(encode_in(request, REQUEST))

    def _open(self, request: m.Open) -> None:
        shard = request.range or RangeSpec()
        state = b"" if request.state_json == b"null" else request.state_json
        heard = partial(decode_in, envelope=RESPONSE)
        self._call = Call(self._address, self._channel, TRANSACTIONS, heard)
        self._tell(
            a.Open(request.materialization, request.version, shard.key_begin, shard.key_end, state)
        )

    def _load(self, request: m.LoadMany) -> None:
        keys: list[bytes] = request.keys_packed.to_pylist()
        if self._committing:
            documents, keys = self._previous.known(request.binding, keys)
            self._early += [m.Loaded(request.binding, document) for document in documents]
        if keys:
            arena = Arena()
            slices = arena.add(keys)
            self._tell(a.Load(request.binding, arena.content, slices))

    def _store(self, request: m.StoreMany) -> None:
        if OP not in request.rows.column_names and pc.any(request.delete).as_py():
            raise CannotDelete
        selection = self._bindings[request.binding].field_selection
        assert selection is not None
        arena = Arena()
        keys = arena.add(request.keys_packed.to_pylist())
        json = json_fields(columns_of(self._bindings[request.binding]))
        values = arena.add(packed_values(request.rows, selection.values, json))
        documents = arena.add(map(msgspec.json.encode, to_documents(request.rows, json)))
        exists = tuple(request.exists.to_pylist())
        self._tell(a.Store(request.binding, arena.content, keys, values, documents, exists))
        if not self._bindings[request.binding].delta_updates:
            self._previous.keep(request, json)

    def _commit(self, checkpoint: Checkpoint) -> None:
        # The driver was told with Prepare what it commits.
        assert encode_value(checkpoint) == self._prepared
        self._tell(a.Commit())
        self._committing = True
        if self._authoritative:
            self._said.append(m.StartedCommit(self._state))

    # What is heard.

    def _heard(self, response: a.Response) -> Iterator[m.Response]:
        match response:
            case a.Opened():
                self._authoritative = bool(response.flow_checkpoint)
                yield m.Opened(_checkpoint(response.flow_checkpoint))
                yield m.Acknowledged()
            case a.Loaded():
                documents = taken(response.arena, response.docs_json)
                self._early += [m.Loaded(response.binding, document) for document in documents]
            case a.DriverCheckpoint():
                self._state = _state(response)
                yield from self._early
                self._early.clear()
                yield m.Flushed()
            case a.Committed():
                if not self._committing:
                    raise MalformedMessage("Committed, and there is nothing to commit")
                self._committing = False
                self._previous.clear()
                if not self._authoritative:
                    yield m.StartedCommit(self._state)
                yield m.Acknowledged()


def _checkpoint(flow_checkpoint: bytes) -> Checkpoint | None:
    if not flow_checkpoint:
        return None
    found: Checkpoint = decode_value(flow_checkpoint, Checkpoint)
    return found


def _state(prepared: a.DriverCheckpoint) -> ConnectorState | None:
    given: Any = prepared.driver_checkpoint_json
    if given == b"{}" and prepared.rfc7396_merge_patch:
        return None
    # Empty means that there is none any more.
    return ConnectorState(given or b"null", prepared.rfc7396_merge_patch)
