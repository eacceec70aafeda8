"""The runtime's side of a session: transactions, one after the other, through any transport.

    Open ─▶ Opened ─▶ ( Acknowledge, Load* ─▶ Acknowledged, Flush ─▶ Loaded*, Flushed, Store*,
    StartCommit ─▶ StartedCommit, recovery log ) for ever

The position a session begins with is the driver's, if Opened has a checkpoint, and else the
recovery log's. A transaction is committed in the recovery log when StartedCommit has come, with
the driver's state in the same entry; Acknowledge tells the driver so at once, and the next
transaction is filled while the driver applies this one.

Invariant:      Acknowledge is said only after the recovery log holds the last transaction; Flush
                only after Acknowledged; the first Store only after the log holds the greatest keys,
                what Flushed brought and, if the endpoint may keep what a failed attempt stores, the
                intent (``intent``). A crash anywhere leaves endpoint and recovery log such
                that the next session resumes exactly, for a driver that is authoritative or
                applies idempotently; for others, such that it repeats exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import msgspec

from headwater.base.errors import HeadwaterError
from headwater.materialize.checkpoint import Position, from_checkpoint
from headwater.materialize.combine import ANY_KEY
from headwater.materialize.intent import Intent
from headwater.materialize.key_range import KEY_HASH_MAX, KeyRange
from headwater.materialize.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Flush,
    Flushed,
    Loaded,
    LoadedMany,
    LoadMany,
    Open,
    Opened,
    Request,
    Response,
    StartCommit,
    StartedCommit,
    StoreMany,
)
from headwater.materialize.protocol.specs import ConnectorState, MaterializationSpec, RangeSpec
from headwater.materialize.recovery import RecoveryLog
from headwater.materialize.reduction.merge_patch import updated_state

ROWS_AT_ONCE: Final = 50_000
"""How many rows a Store has at most."""
BYTES_AT_ONCE: Final = 8 << 20
"""How many bytes of rows a Store has at most, about, unless one row has more."""

_Expected = TypeVar("_Expected", bound=Response)


class Stream(Protocol):
    """The runtime's end of a transport."""

    def send(self, request: Request) -> None:
        """Say something to the driver."""
        ...

    def receive(self) -> Response:
        """Wait for what the driver says next."""
        ...

    def end(self) -> None:
        """End the stream where the protocol permits it, and wait until the driver has, too."""
        ...

    def abort(self) -> None:
        """Break the stream off; what the driver has not committed never happens."""
        ...


class UnexpectedResponse(HeadwaterError):
    """A response that the table permits and that is not what we wait for."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What one transaction delivers."""

    position: Position
    stores: Callable[[Mapping[int, Sequence[Loaded | LoadedMany]]], Iterable[StoreMany]]
    """What is stored, given what was loaded of each binding; ascending by binding."""
    loads: Iterable[LoadMany] = ()
    max_keys: tuple[tuple[str, bytes], ...] = ()
    """By state key, the greatest key that will be stored."""
    keep: Callable[[Loaded | LoadedMany], None] | None = None
    """Who takes what was loaded, one by one; nobody: all is given to ``stores``."""
    intent: Intent | None = None
    """What is to be repeated if it fails, where that matters; ``None``: it stores nothing."""

    @classmethod
    def of(cls, stores: Sequence[StoreMany], position: Position) -> Transaction:
        """Return a transaction that needs to load nothing."""
        return cls(position, lambda _: stores)


def _pieces(store: StoreMany) -> Iterator[StoreMany]:
    """Yield a run in pieces: a driver may need an object per value of what it has in hand."""
    count, nbytes = store.rows.num_rows, max(1, store.rows.nbytes)
    step = max(1, min(ROWS_AT_ONCE, count * BYTES_AT_ONCE // nbytes))
    for start in range(0, count, step):
        yield StoreMany(
            store.binding,
            store.keys_packed.slice(start, step),
            store.rows.slice(start, step),
            store.exists.slice(start, step),
            store.delete.slice(start, step),
        )


class Delivery:
    """One session of one shard."""

    def __init__(
        self,
        stream: Stream,
        materialization: MaterializationSpec,
        version: str,
        key_range: KeyRange,
        recovery: RecoveryLog,
        source: str = "",
        *,
        repeats: bool = False,
    ) -> None:
        """``repeats``: what fails is repeated as it was, unless the endpoint has a checkpoint."""
        self._stream = stream
        self._recovery = recovery
        self._acknowledged = False
        """Whether the driver has said Acknowledged in the transaction in hand."""
        self._told = False
        """Whether we have said Acknowledge in the transaction in hand."""
        shard = RangeSpec(key_range.begin, key_range.end, 0, KEY_HASH_MAX)
        self._stream.send(Open(materialization, version, shard, recovery.entry.state_json))
        opened = self._expect(Opened)
        self._source = source or materialization.name
        self._loads_all = opened.disable_load_optimization
        self.repeats = repeats and opened.runtime_checkpoint is None
        """Whether the endpoint may keep what a failed attempt told it."""
        self.position = (
            recovery.entry.position
            if opened.runtime_checkpoint is None
            else from_checkpoint(opened.runtime_checkpoint, self._source)
        )
        """Everything before it is delivered; ``None``: nothing is."""

    def max_key(self, state_key: str) -> bytes:
        """Return the greatest packed key of a binding that can be in the endpoint."""
        return ANY_KEY if self._loads_all else self._known_max(state_key)

    def _known_max(self, state_key: str) -> bytes:
        known = dict(self._recovery.entry.max_keys).get(state_key)
        if known is None and self.position is not None:
            return ANY_KEY  # Something was stored, and not under our eyes.
        return known or b""

    def transact(self, transaction: Transaction) -> None:
        """Deliver one transaction; when this returns, it is committed in the recovery log.

        Loads go out before the last transaction is acknowledged, and wait for that with the
        driver. The next transaction may be filled while the driver applies this one.
        """
        position = transaction.position
        checkpoint = position.to_checkpoint(self._source)
        self._acknowledge()
        for load in transaction.loads:
            self._stream.send(load)
        self.settle()
        self._stream.send(Flush(runtime_checkpoint=checkpoint))
        loaded, flushed = self._flushed(transaction.keep)
        # What the driver stages from now on it may need to find again, whatever comes; and a key
        # that a store without transactions may get half way must be loaded next time.
        self._keep(flushed.state, transaction.max_keys, transaction.intent)
        for store in transaction.stores(loaded):
            for piece in _pieces(store):
                self._stream.send(piece)
        self._stream.send(StartCommit(checkpoint))
        started = self._expect(StartedCommit)
        entry = self._recovery.entry
        state = updated_state(entry.state_json, started.state)
        self._recovery.commit(
            msgspec.structs.replace(entry, position=position, state_json=state, intent=None),
            self.position,
        )
        self.position = position
        self._acknowledged = self._told = False
        self._acknowledge()

    def settle(self) -> None:
        """Tell the driver that the last transaction is committed; wait until it has applied it."""
        self._acknowledge()
        if not self._acknowledged:
            self._keep(self._expect(Acknowledged).state)
            self._acknowledged = True

    def end(self) -> None:
        """End the session after the last transaction."""
        self.settle()
        self._stream.end()

    def _acknowledge(self) -> None:
        if not self._told:
            self._stream.send(Acknowledge())
            self._told = True

    def _flushed(
        self, keep: Callable[[Loaded | LoadedMany], None] | None
    ) -> tuple[Mapping[int, Sequence[Loaded | LoadedMany]], Flushed]:
        loaded: dict[int, list[Loaded | LoadedMany]] = {}
        while True:
            response = self._stream.receive()
            match response:
                case Loaded() | LoadedMany() if keep is not None:
                    keep(response)
                case Loaded() | LoadedMany():
                    loaded.setdefault(response.binding, []).append(response)
                case Flushed():
                    return loaded, response
                case _:
                    raise UnexpectedResponse(f"{type(response).__name__} instead of Flushed")

    def _expect(self, kind: type[_Expected]) -> _Expected:
        response = self._stream.receive()
        if not isinstance(response, kind):
            raise UnexpectedResponse(f"{type(response).__name__} instead of {kind.__name__}")
        return response

    def _keep(
        self,
        update: ConnectorState | None,
        max_keys: Sequence[tuple[str, bytes]] = (),
        intent: Intent | None = None,
    ) -> None:
        """Make durable what must be so before anything else is said; nothing if nothing is new."""
        entry = self._recovery.entry
        greatest = dict(entry.max_keys)
        for state_key, key in max_keys:
            greatest[state_key] = max(key, self._known_max(state_key))
        kept = msgspec.structs.replace(
            entry,
            state_json=updated_state(entry.state_json, update),
            max_keys=tuple(sorted(greatest.items())),
            intent=intent if intent is not None and self.repeats else entry.intent,
        )
        if kept != entry:
            self._recovery.commit(kept, None)
