"""The runtime's side of a session: transactions, one after the other, through any transport.

    Open ─▶ Opened ─▶ ( Acknowledge ─▶ Acknowledged, Flush ─▶ Flushed, Store*, StartCommit ─▶
    StartedCommit, recovery log ) for ever

The position a session begins with is the driver's, if Opened has a checkpoint, and else the
recovery log's. A transaction is committed in the recovery log when StartedCommit has come, with
the driver's state in the same entry; Acknowledge tells the driver so, in the next transaction or
in :meth:`Delivery.settle`.

Invariant:      Acknowledge is said only after the recovery log holds the last transaction; Flush
                only after Acknowledged. A crash anywhere leaves endpoint and recovery log such
                that the next session resumes exactly, for a driver that is authoritative or
                applies idempotently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headwater.base.errors import HeadwaterError
from headwater.materialize.checkpoint import Position, from_checkpoint
from headwater.materialize.key_range import KEY_HASH_MAX, KeyRange
from headwater.materialize.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Flush,
    Flushed,
    Open,
    Opened,
    Request,
    Response,
    StartCommit,
    StartedCommit,
    StoreMany,
)
from headwater.materialize.protocol.specs import ConnectorState, MaterializationSpec, RangeSpec
from headwater.materialize.reduction.merge_patch import updated_state


class Stream(Protocol):
    """The runtime's end of a transport."""

    def send(self, request: Request) -> None:
        """Say something to the driver."""
        ...

    def receive(self) -> Response:
        """Wait for what the driver says next."""
        ...

    def end(self) -> None:
        """End the stream."""
        ...


class RecoveryLog(Protocol):
    """What the runtime itself remembers of a shard."""

    @property
    def position(self) -> Position | None:
        """The last position that was committed here."""
        ...

    @property
    def state_json(self) -> bytes:
        """The driver's state, committed with it."""
        ...

    def commit(self, position: Position | None, state_json: bytes) -> None:
        """Make both durable, at once."""
        ...


class UnexpectedResponse(HeadwaterError):
    """A response that the table permits and that is not what we wait for."""


class Delivery:
    """One session of one shard."""

    def __init__(
        self,
        stream: Stream,
        materialization: MaterializationSpec,
        version: str,
        key_range: KeyRange,
        recovery: RecoveryLog,
    ) -> None:
        self._stream = stream
        self._recovery = recovery
        self._acknowledged = False
        """Whether the driver has said Acknowledged in the transaction in hand."""
        self._told = False
        """Whether we have said Acknowledge in the transaction in hand."""
        shard = RangeSpec(key_range.begin, key_range.end, 0, KEY_HASH_MAX)
        self._stream.send(Open(materialization, version, shard, recovery.state_json))
        opened = self._stream.receive()
        if not isinstance(opened, Opened):
            raise UnexpectedResponse(f"{type(opened).__name__} instead of Opened")
        self._name = materialization.name
        self.position = (
            recovery.position
            if opened.runtime_checkpoint is None
            else from_checkpoint(opened.runtime_checkpoint, materialization.name)
        )

    def transact(self, stores: Sequence[StoreMany], position: Position) -> None:
        """Deliver one transaction; ``stores`` ascend by binding."""
        self.settle()
        self._stream.send(Flush())
        flushed = self._stream.receive()
        if not isinstance(flushed, Flushed):
            raise UnexpectedResponse(f"{type(flushed).__name__} instead of Flushed")
        # What the driver stages from now on it may need to find again, whatever comes.
        self._keep(flushed.state)
        for store in stores:
            if store.rows.num_rows:
                self._stream.send(store)
        self._stream.send(StartCommit(position.to_checkpoint(self._name)))
        started = self._stream.receive()
        if not isinstance(started, StartedCommit):
            raise UnexpectedResponse(f"{type(started).__name__} instead of StartedCommit")
        self._recovery.commit(position, updated_state(self._recovery.state_json, started.state))
        self.position = position
        self._acknowledged = self._told = False

    def settle(self) -> None:
        """Tell the driver that the last transaction is committed; wait until it has applied it."""
        if not self._told:
            self._stream.send(Acknowledge())
            self._told = True
        while not self._acknowledged:
            acknowledged = self._stream.receive()
            if not isinstance(acknowledged, Acknowledged):
                raise UnexpectedResponse(f"{type(acknowledged).__name__} before Acknowledged")
            self._keep(acknowledged.state)
            self._acknowledged = True

    def end(self) -> None:
        """End the session after the last transaction."""
        self.settle()
        self._stream.end()

    def _keep(self, update: ConnectorState | None) -> None:
        if update is not None and update.updated_json:
            state = updated_state(self._recovery.state_json, update)
            self._recovery.commit(self._recovery.position, state)
