"""Which materializations there are, and that each of them runs.

A materialization is durable as the item ``materialization/<name>`` (``definition``), written in the
same entry that makes its read holds, after its driver has said that it can be done. Whoever opens
the location starts all of them again; each resumes from its checkpoint.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa

from headwater.base.decoding import from_json
from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.base.ids import GlobalId
from headwater.collection.capability import ReadCapability, from_text, new_token
from headwater.collection.commands import drop_command
from headwater.materialize.combine_job import Tasks
from headwater.materialize.definition import (
    CONNECTION,
    CONNECTOR,
    SECRETS,
    Binding,
    Definition,
    Endpoint,
    version_of,
)
from headwater.materialize.delivery import Stream
from headwater.materialize.disclosing import Disclose, Disclosing
from headwater.materialize.drivers.registry import Guarantee, check_shards, guarantee
from headwater.materialize.in_task import ShardTasks, check_tasks
from headwater.materialize.key_range import KeyRange
from headwater.materialize.pace import TASKS, Tuning
from headwater.materialize.protocol.messages import Applied, Apply
from headwater.materialize.protocol.specs import Constraint, MaterializationSpec
from headwater.materialize.recovery import entry_of, shard_items
from headwater.materialize.replaced import (
    CannotBeMoved,
    check_columns,
    check_replaceable,
    check_schema,
    formers,
    moved,
    settled,
)
from headwater.materialize.runtime import RETRY_SECONDS, open_stream
from headwater.materialize.selection import constraints_of
from headwater.materialize.shards import Materialization
from headwater.materialize.splits import put_shards
from headwater.materialize.validating import validated_spec
from headwater.materialize.wire.protobuf import decode_value
from headwater.persist.client import Client
from headwater.persist.commands import Atomic, Command, OpenReader, SetItem
from headwater.persist.decision import collection_of
from headwater.persist.spark_parts import place_of

PREFIX: Final = "materialization/"

NOT_DESCRIBED: Final = (
    "a connector of protocol 3032023 cannot say what it would do; these are its constraints alone"
)

_INCARNATION_BYTES: Final = 4


class ResourceNotEmpty(InvalidUsage):
    """A new materialization into a table that has rows."""

    def __init__(self, target: str) -> None:
        super().__init__(
            f"{target!r} has rows already, and a materialization would mix its own with them; "
            "choose another target, or empty this one"
        )


class UnknownMaterialization(InvalidUsage):
    """No materialization has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no materialization {name!r}")


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a materialization would be, had it been installed."""

    actions: str
    """What would be done at the endpoint; empty: nothing, or it cannot be asked."""
    constraints: tuple[tuple[str, str, Constraint], ...]
    """Binding, field, and what the driver demands of it."""
    guarantees: tuple[tuple[str, Guarantee], ...]
    """Binding, and how often a change arrives."""
    warnings: tuple[str, ...]


class Materializations:
    """All materializations of a location."""

    def __init__(
        self,
        client: Client,
        *,
        retry_seconds: float = RETRY_SECONDS,
        tasks: Tasks | None = None,
        shard_tasks: ShardTasks | None = None,
    ) -> None:
        """``tasks`` combine what is large; without them the threads of shards do.

        ``shard_tasks`` carry whole shards, where that is wanted.
        """
        self._client = client
        self._tasks = tasks
        self._shard_tasks = shard_tasks
        self._retry_seconds = retry_seconds
        self.disclose: Disclose | None = None
        """Says what a connection says, to drivers alone; set by who keeps connections."""
        self._running: dict[str, Materialization] = {}

    def start(self) -> None:
        """Start every materialization that the log knows."""
        for key, value in self._client.core.state.items.items():
            if key.startswith(PREFIX):
                definition = from_json(value, Definition)
                if not definition.paused:
                    self._start(definition)

    def stop(self) -> None:
        """Stop them all; nothing is lost by it."""
        for running in self._running.values():
            running.stop()
        self._running.clear()
        if self._shard_tasks is not None:
            self._shard_tasks.close()

    def get(self, name: str) -> Materialization | None:
        """Return a running materialization."""
        return self._running.get(name)

    def install(
        self,
        name: str,
        endpoint: Endpoint,
        bindings: Sequence[Binding],
        *,
        hard_delete: bool = True,
        shards: int = 1,
        tuning: Mapping[str, Any] | None = None,
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
            hard_delete and not endpoint.speaks_arenas,
            shards=shards,
            tuning=Tuning(**(tuning or {})),
        )
        check_shards(endpoint.driver, shards)
        self._check_tuning(definition.tuning)
        self._validate(definition)
        stored = SetItem(PREFIX + name, msgspec.json.encode(definition))
        tiled = () if shards == 1 else (put_shards(name, shards),)
        self._client.core.submit(Atomic((*opens, stored, *tiled, *also))).result()
        self._start(definition)

    def dry_run(
        self,
        name: str,
        endpoint: Endpoint,
        bindings: Sequence[Binding],
        *,
        hard_delete: bool = True,
    ) -> DryRun:
        """Ask the driver what would be; nothing is changed, here or there."""
        hard_delete = hard_delete and not endpoint.speaks_arenas
        definition = Definition(name, "", endpoint, tuple(bindings), (), hard_delete)
        # Flow's protocol has no word for it, and a connector would do what it should describe.
        described = endpoint.driver != CONNECTOR or endpoint.speaks_arenas
        stream = self._open(definition)
        try:
            spec, _, validated = validated_spec(self._client, definition, stream)
            actions = ""
            if described:
                stream.send(Apply(spec, version_of(spec), dry_run=True))
                applied = stream.receive()
                actions = applied.action_description if isinstance(applied, Applied) else ""
            stream.end()
        except BaseException:
            stream.abort()
            raise
        called = _called(bindings)
        guarantees = tuple(
            (named, guarantee(endpoint.driver, endpoint.config, last_write_wins=b.last_write_wins))
            for named, b in zip(called, bindings, strict=True)
        )
        return DryRun(
            actions,
            tuple(
                (named, field, constraint)
                for named, answer in zip(called, validated.bindings, strict=True)
                for field, constraint in constraints_of(answer)
            ),
            guarantees,
            (
                *(() if described else (NOT_DESCRIBED,)),
                *(
                    f"binding {named!r} may deliver a change more than once, and then it counts "
                    "again"
                    for named, promised in guarantees
                    if promised is Guarantee.AT_LEAST_ONCE
                ),
            ),
        )

    def pause(self, name: str) -> None:
        """Let a materialization rest, also over restarts; what it needs to go on is held."""
        running = self._running.pop(name, None)
        if running is not None:
            running.stop()
        self._redefine(name, lambda known: msgspec.structs.replace(known, paused=True))

    def resume(self, name: str) -> None:
        """Let a materialization go on from where it rests."""
        definition = self._redefine(
            name, lambda known: msgspec.structs.replace(known, paused=False)
        )
        if name not in self._running:
            self._start(definition)

    def backfill(self, name: str) -> None:
        """Let everything be delivered anew, into tables that are emptied first."""
        running = self._running.pop(name, None)
        if running is not None:
            running.stop()
        definition = self._redefine(
            name, lambda known: msgspec.structs.replace(known, backfill=known.backfill + 1)
        )
        if not definition.paused:
            self._start(definition)

    def reshape(self, name: str, shards: int, also: tuple[Command, ...] = ()) -> None:
        """Let a materialization have so many shards; those it has are drained first."""
        check_shards(self._defined(name).endpoint.driver, shards)
        self._redefine(name, lambda known: msgspec.structs.replace(known, shards=shards), also)
        running = self._running.get(name)
        if running is not None:
            running.reshape(shards)

    def tune(self, name: str, tuning: Mapping[str, Any], also: tuple[Command, ...] = ()) -> None:
        """Change how transactions are delivered; the next ones are so."""
        self._check_tuning(Tuning(**tuning))
        definition = self._redefine(
            name,
            lambda known: msgspec.structs.replace(
                known, tuning=msgspec.structs.replace(known.tuning, **tuning)
            ),
            also,
        )
        running = self._running.pop(name, None)
        if running is not None:
            running.stop()
            self._start(definition)

    def _check_tuning(self, tuning: Tuning) -> None:
        if tuning.shards_in == TASKS:
            check_tasks(self._shard_tasks, place_of(self._client.core))

    # ---- another collection in place of one that is delivered ----------------------------------

    def _made_of(self, gone: Collection[GlobalId]) -> list[Definition]:
        """Return the materializations that deliver any of these collections."""
        found = (
            from_json(value, Definition)
            for key, value in self._client.core.state.items.items()
            if key.startswith(PREFIX)
        )
        return [each for each in found if any(b.collection in gone for b in each.bindings)]

    def check_replaceable(self, gone: Collection[GlobalId]) -> None:
        """Refuse to replace collections that a materialization could not be moved from."""
        for definition in self._made_of(gone):
            with _naming(definition.name):
                check_replaceable(definition, gone)

    def check_delivered(self, gone: GlobalId, new: pa.Schema) -> None:
        """Refuse columns in place of those of a collection that is delivered."""
        state = self._client.core.state
        for definition in self._made_of((gone,)):
            with _naming(definition.name):
                check_schema(state, definition, gone, new)

    def replace(
        self, swapped: Mapping[GlobalId, GlobalId], swap: Callable[[tuple[Command, ...]], object]
    ) -> None:
        """Have collections delivered in place of others, from the difference on.

        ``swap`` commits these commands, in one entry with what it is about; what cannot go on is
        refused before. Those that deliver rest meanwhile.
        """
        state = self._client.core.state
        concerned = [each.name for each in self._made_of(swapped)]
        for name in concerned:
            with _naming(name):
                check_columns(state, self._defined(name), swapped)
                self._ask(moved(state, self._defined(name), swapped)[0])
        running = [self._running.pop(name) for name in concerned if name in self._running]
        for each in running:
            each.stop()
        try:
            # None of them moves any more: the state has where they stand.
            state = self._client.core.state
            commands: list[Command] = []
            for name in concerned:
                definition, opens = moved(state, self._defined(name), swapped)
                commands += [*opens, SetItem(PREFIX + name, msgspec.json.encode(definition))]
            swap(tuple(commands))
        finally:
            for each in running:
                self._start(self._defined(each.name))

    def _ask(self, definition: Definition) -> None:
        """Ask a driver whether it takes a materialization as it would be."""
        entry = entry_of(self._client.core, definition.name, KeyRange.tiling(definition.shards)[0])
        last = decode_value(entry.applied, MaterializationSpec) if entry.applied else None
        stream = self._open(definition)
        try:
            validated_spec(self._client, definition, stream, last, entry.version)
            stream.end()
        except BaseException:
            stream.abort()
            raise

    def needs(self, gid: GlobalId) -> bool:
        """Whether anybody needs a collection that was replaced; who does not forgets it."""
        state = self._client.core.state
        needed = False
        for key, value in state.items.items():
            if not key.startswith(PREFIX):
                continue
            definition = from_json(value, Definition)
            if gid not in formers(definition):
                continue
            if settled(state, definition):
                reads = [was.read for binding in definition.bindings for was in binding.was]
                drops = tuple(drop_command(from_text(read)) for read in reads)
                self._redefine(definition.name, _forgetting, drops)
            else:
                needed = True
        return needed

    def _defined(self, name: str) -> Definition:
        value = self._client.core.state.items.get(PREFIX + name)
        if value is None:
            raise UnknownMaterialization(name)
        return from_json(value, Definition)

    def _redefine(
        self,
        name: str,
        change: Callable[[Definition], Definition],
        also: tuple[Command, ...] = (),
    ) -> Definition:
        definition = change(self._defined(name))
        stored = SetItem(PREFIX + name, msgspec.json.encode(definition))
        self._client.core.submit(Atomic((stored, *also))).result()
        return definition

    def _open(self, definition: Definition) -> Stream:
        stream = open_stream(definition)
        if not _is_disclosed(definition):
            return stream
        if self.disclose is None:
            raise InvalidUsage(f"{definition.name!r} needs a connection, and nobody keeps them")
        return Disclosing(stream, self.disclose)

    def _validate(self, definition: Definition) -> None:
        stream = self._open(definition)
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
            definition = from_json(value, Definition)
            former = [was.read for binding in definition.bindings for was in binding.was]
            drops = [drop_command(from_text(read)) for read in (*definition.reads, *former)]
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
        running = Materialization(
            self._client,
            definition,
            reads,
            connect=partial(self._open, definition) if _is_disclosed(definition) else None,
            retry_seconds=self._retry_seconds,
            tasks=self._tasks,
            shard_tasks=self._shard_tasks,
        )
        self._running[definition.name] = running
        running.start()


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say of which materialization it is that something cannot be."""
    try:
        yield
    except HeadwaterError as error:
        raise CannotBeMoved(name, error) from error


def _called(bindings: Sequence[Binding]) -> list[str]:
    """Return what tells bindings apart: the collection's name, and its target if it has several."""
    names = Counter(binding.name for binding in bindings)
    return [b.name if names[b.name] == 1 else f"{b.name} AS {b.target}" for b in bindings]


def _forgetting(known: Definition) -> Definition:
    """Return a materialization that does not know any more what it was made of."""
    bindings = tuple(msgspec.structs.replace(binding, was=()) for binding in known.bindings)
    return msgspec.structs.replace(known, bindings=bindings)


def _is_disclosed(definition: Definition) -> bool:
    """Whether a driver needs to be told what the log does not know."""
    return bool({CONNECTION, SECRETS} & definition.endpoint.config.keys())
