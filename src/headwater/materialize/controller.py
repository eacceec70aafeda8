"""Which materializations there are, and that each of them runs.

A materialization is durable as the item ``materialization/<name>``, written in the same entry that
makes its read holds. Whoever opens the location starts all of them again; each resumes from the
checkpoint in its endpoint.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa

from headwater.base.errors import InvalidUsage
from headwater.base.ids import GlobalId
from headwater.collection.capability import ReadCapability, from_text, new_token
from headwater.collection.commands import drop_command
from headwater.materialize.drivers.driver import BindingSpec
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.runtime import Materialization
from headwater.persist import evolution
from headwater.persist.client import Client
from headwater.persist.commands import Atomic, Command, OpenReader, SetItem
from headwater.persist.decision import collection_of

PREFIX = "materialization/"


class _BindingItem(msgspec.Struct, frozen=True):
    name: str
    target: str
    key: tuple[str, ...]
    read: str
    """The read capability, as text."""


class _Item(msgspec.Struct, frozen=True):
    name: str
    path: str
    bindings: tuple[_BindingItem, ...]


class UnknownKeyColumn(InvalidUsage):
    """A key column that the collection does not have."""

    def __init__(self, binding: str, column: str, schema: pa.Schema) -> None:
        super().__init__(
            f"binding {binding!r} has no column {column!r}; its columns are {schema.names}"
        )


class Materializations:
    """All materializations of a location."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._running: dict[str, Materialization] = {}

    def start(self) -> None:
        """Start every materialization that the log knows."""
        for key, value in self._client.core.state.items.items():
            if key.startswith(PREFIX):
                self._start(msgspec.json.decode(value, type=_Item))

    def stop(self) -> None:
        """Stop them all; nothing is lost by it."""
        for running in self._running.values():
            running.stop()
        self._running.clear()

    def get(self, name: str) -> Materialization | None:
        """Return a running materialization."""
        return self._running.get(name)

    def create(
        self,
        name: str,
        path: Path,
        bindings: tuple[tuple[str, GlobalId, str, tuple[str, ...]], ...],
        also: tuple[Command, ...] = (),
    ) -> None:
        """Install a materialization: ``(binding name, collection, target table, key)`` each."""
        state = self._client.core.state
        items, opens = [], []
        for binding, gid, target, key in bindings:
            collection = collection_of(state, gid)
            schema = evolution.from_bytes(collection.schemas[-1])
            for column in key:
                if column not in schema.names:
                    raise UnknownKeyColumn(binding, column, schema)
            read = ReadCapability(gid, new_token(), collection.since)
            opens.append(OpenReader(gid, read.holder, f"materialization {name}"))
            items.append(_BindingItem(binding, target, key, read.to_text()))
        item = _Item(name, str(path), tuple(items))
        driver = SqliteDriver(path)  # Fails before anything is durable.
        driver.close()
        stored = SetItem(PREFIX + name, msgspec.json.encode(item))
        self._client.core.submit(Atomic((*opens, stored, *also))).result()
        self._start(item)

    def drop(self, name: str, also: tuple[Command, ...] = ()) -> None:
        """Stop a materialization for good and release what it held; its tables stay."""
        running = self._running.pop(name, None)
        if running is not None:
            running.stop()
        value = self._client.core.state.items.get(PREFIX + name)
        drops: list[Command] = []
        if value is not None:
            for binding in msgspec.json.decode(value, type=_Item).bindings:
                read = from_text(binding.read)
                drops.append(drop_command(read))
        command = Atomic((*drops, SetItem(PREFIX + name, None), *also))
        self._client.core.submit(command).result()

    def _start(self, item: _Item) -> None:
        inputs = []
        for binding in item.bindings:
            read = from_text(binding.read)
            assert isinstance(read, ReadCapability)
            collection = collection_of(self._client.core.state, read.id)
            # The log knows how far the hold has moved since it was written down.
            current = read.at(collection.readers[read.holder].since)
            schema = evolution.from_bytes(collection.schemas[-1])
            spec = BindingSpec(binding.name, binding.target, schema, binding.key)
            inputs.append((spec, current))
        driver = SqliteDriver(Path(item.path))
        running = Materialization(item.name, self._client, driver, tuple(inputs))
        self._running[item.name] = running
        running.start()
