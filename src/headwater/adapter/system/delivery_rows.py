"""Materializations: how each does, and what it promises for each of its bindings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.adapter.system.seen import Seen
from headwater.adapter.system.system_view import OBJECT, Column, Row, SystemView
from headwater.base.decoding import from_json
from headwater.materialize.controller import PREFIX
from headwater.materialize.definition import Definition
from headwater.materialize.drivers.registry import guarantee


def _defined(seen: Seen) -> Iterator[tuple[str, str, str, Definition]]:
    for each in seen.objects():
        stored = seen.state.items.get(PREFIX + each.id)
        if each.kind == "materialization" and stored is not None:
            yield each.id, each.name, each.kind, from_json(stored, Definition)


def _materializations(seen: Seen) -> Iterator[Row]:
    for oid, name, kind, defined in _defined(seen):
        about = (oid, name, kind, defined.endpoint.driver)
        status = seen.deliveries(oid)
        if status is None:
            yield (*about, "paused", *(None,) * 8, defined.shards, None)
            continue
        lag = None if status.reached is None else max(0, seen.oracle_upper - status.reached)
        yield (
            *about,
            status.state.value,
            lag,
            status.checkpoint,
            status.reached,
            status.transactions,
            status.rows_loaded,
            status.rows_stored,
            status.rows_deleted,
            status.error or None,
            status.shards,
            status.aligned,
        )


def _shards(seen: Seen) -> Iterator[Row]:
    for oid, name, kind, _ in _defined(seen):
        status = seen.deliveries(oid)
        for key_range, shard in () if status is None else status.ranges:
            yield (
                oid,
                name,
                kind,
                key_range,
                shard.state.value,
                shard.checkpoint,
                shard.reached,
                shard.transactions,
                shard.rows_loaded,
                shard.rows_stored,
                shard.rows_deleted,
                shard.error or None,
                shard.runs_in or None,
            )


def _bindings(seen: Seen) -> Iterator[Row]:
    names = {seen.state.names[each.collection]: each for each, _ in seen.collections()}
    for oid, name, kind, defined in _defined(seen):
        to = defined.endpoint
        for position, binding in enumerate(defined.bindings, 1):
            of = names.get(binding.collection)
            promised = guarantee(to.driver, to.config, last_write_wins=binding.last_write_wins)
            yield (
                oid,
                name,
                kind,
                position,
                None if of is None else of.id,
                binding.name if of is None else of.name,
                binding.target,
                ", ".join(binding.key),
                binding.delta_updates,
                ", ".join(f"{column} {strategy}" for column, strategy in binding.reduce) or None,
                promised.value,
            )


VIEWS: Final = (
    SystemView(
        "hw_materializations",
        "Deliveries: how far each is. Counts are since this server started.",
        (
            *OBJECT,
            Column("endpoint", "text", "which driver delivers it"),
            Column(
                "status", "text", "`starting`, `running`, `stalled`, `fenced`, `paused`, `stopped`"
            ),
            Column("lag_ms", "bigint", "how far the endpoint is behind the timeline"),
            Column("last_transaction", "bigint", "everything before this time was committed"),
            Column("delivered", "bigint", "the endpoint is exact at every time up to before it"),
            Column("transactions", "bigint", "transactions committed"),
            Column("rows_loaded", "bigint", "rows read back from the endpoint"),
            Column("rows_stored", "bigint", "rows inserted or replaced there"),
            Column("rows_deleted", "bigint", "rows deleted there"),
            Column("last_error", "text", "why it is not running"),
            Column("shards", "integer", "how many key ranges are delivered side by side"),
            Column("aligned", "boolean", "whether all shards stand at one time"),
        ),
        _materializations,
    ),
    SystemView(
        "hw_materialization_shards",
        "The key ranges of each delivery. Counts are since the ranges are as they are.",
        (
            *OBJECT,
            Column("key_range", "text", "first and last key hash, in hexadecimal"),
            Column("status", "text", "`starting`, `running`, `stalled`, `fenced`, `stopped`"),
            Column("last_transaction", "bigint", "everything before this time was committed"),
            Column("delivered", "bigint", "its keys are exact at every time up to before it"),
            Column("transactions", "bigint", "transactions committed"),
            Column("rows_loaded", "bigint", "rows read back from the endpoint"),
            Column("rows_stored", "bigint", "rows inserted or replaced there"),
            Column("rows_deleted", "bigint", "rows deleted there"),
            Column("last_error", "text", "why it is not running"),
            Column("runs_in", "text", "`thread` of the server, or `task` of Spark"),
        ),
        _shards,
    ),
    SystemView(
        "hw_materialization_bindings",
        "What each delivery takes where, and how often a change arrives.",
        (
            *OBJECT,
            Column("position", "integer", "place of the binding, from 1"),
            Column("source_id", "text", "id of what is delivered"),
            Column("source", "text", "the name of that"),
            Column("target", "text", "table, file or topic at the endpoint"),
            Column("key", "text", "the columns that tell rows apart"),
            Column("delta_updates", "boolean", "whether changes are delivered, not rows"),
            Column("reduce", "text", "columns that are combined, and how"),
            Column("guarantee", "text", "`exactly once`, `effectively once`, `at least once`"),
        ),
        _bindings,
    ),
)
