"""Which materializations there are, and that each of them runs.

A materialization is durable as the item ``materialization/<name>`` (``definition``), written in the
same entry that makes its read holds, after its driver has said that it can be done. Whoever opens
the location starts all of them again; each resumes from its checkpoint.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from headwater.base.errors import InvalidUsage
from headwater.base.ids import GlobalId
from headwater.collection.capability import ReadCapability, from_text, new_token
from headwater.collection.commands import drop_command
from headwater.materialize.definition import Binding, Definition, Endpoint
from headwater.materialize.recovery import shard_items
from headwater.materialize.runtime import Materialization, streams, validated_spec
from headwater.persist.client import Client
from headwater.persist.commands import Atomic, Command, OpenReader, SetItem
from headwater.persist.decision import collection_of

PREFIX: Final = "materialization/"

_INCARNATION_BYTES: Final = 4


class ResourceNotEmpty(InvalidUsage):
    """A new materialization into a table that has rows."""

    def __init__(self, target: str) -> None:
        super().__init__(
            f"{target!r} has rows already, and a materialization would mix its own with them; "
            "choose another target, or empty this one"
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
                self._start(msgspec.json.decode(value, type=Definition))

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
        bindings: Sequence[tuple[str, GlobalId, str, tuple[str, ...]]],
        also: tuple[Command, ...] = (),
    ) -> None:
        """Install one into SQLite: ``(binding name, collection, target table, key)`` each."""
        bound = [Binding(*binding) for binding in bindings]
        self.install(name, Endpoint("sqlite", {"path": str(path)}), bound, also=also)

    def install(
        self,
        name: str,
        endpoint: Endpoint,
        bindings: Sequence[Binding],
        *,
        hard_delete: bool = True,
        also: tuple[Command, ...] = (),
    ) -> None:
        """Install a materialization; refused before anything is durable if it cannot be done."""
        state = self._client.core.state
        reads, opens = [], []
        for binding in bindings:
            since = collection_of(state, binding.collection).since
            read = ReadCapability(binding.collection, new_token(), since)
            opens.append(OpenReader(read.id, read.holder, f"materialization {name}"))
            reads.append(read.to_text())
        definition = Definition(
            name,
            secrets.token_hex(_INCARNATION_BYTES),
            endpoint,
            tuple(bindings),
            tuple(reads),
            hard_delete,
        )
        self._validate(definition)
        stored = SetItem(PREFIX + name, msgspec.json.encode(definition))
        self._client.core.submit(Atomic((*opens, stored, *also))).result()
        self._start(definition)

    def _validate(self, definition: Definition) -> None:
        stream = streams(definition)()
        try:
            _, _, validated = validated_spec(self._client, definition, stream)
            for binding, answer in zip(definition.bindings, validated.bindings, strict=True):
                if answer.holds_data:
                    raise ResourceNotEmpty(binding.target)
            stream.end()
        except BaseException:
            stream.abort()
            raise

    def drop(self, name: str, also: tuple[Command, ...] = ()) -> None:
        """Stop a materialization for good and release what it held; its tables stay."""
        running = self._running.pop(name, None)
        if running is not None:
            running.stop()
        value = self._client.core.state.items.get(PREFIX + name)
        drops: list[Command] = []
        if value is not None:
            definition = msgspec.json.decode(value, type=Definition)
            drops = [drop_command(from_text(read)) for read in definition.reads]
        keys = [PREFIX + name, *shard_items(self._client.core, name)]
        removed = [SetItem(key, None) for key in keys]
        self._client.core.submit(Atomic((*drops, *removed, *also))).result()

    def _start(self, definition: Definition) -> None:
        reads = []
        for text in definition.reads:
            read = from_text(text)
            assert isinstance(read, ReadCapability)
            # The log knows how far the hold has moved since it was written down.
            held = collection_of(self._client.core.state, read.id).readers[read.holder]
            reads.append(read.at(held.since))
        running = Materialization(self._client, definition, reads)
        self._running[definition.name] = running
        running.start()
