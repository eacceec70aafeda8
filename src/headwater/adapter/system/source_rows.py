"""Sources: what they read, how far, and how that goes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from headwater.adapter.system.seen import Seen
from headwater.adapter.system.system_view import OBJECT, Column, Row, SystemView
from headwater.storage.offsets import Offsets
from headwater.storage.outputs import Statistics


def _sources(seen: Seen) -> Iterator[Row]:
    for each in seen.objects():
        if each.kind != "source" or each.of:
            continue
        source = seen.sources.get(each.id)
        if source is None:
            yield (each.id, each.name, each.kind, *(None,) * 16)
            continue
        counted, status = source.statistics, source.status
        yield (
            each.id,
            each.name,
            each.kind,
            source.kind,
            source.reliance.value,
            status.condition.value,
            datetime.fromtimestamp(status.since_ms / 1000, UTC),
            status.why or None,
            _shown(counted.offsets_known),
            _shown(counted.offsets_committed),
            source.lag,
            counted.messages,
            counted.bytes,
            counted.updates,
            counted.dead_letters,
            counted.races_lost,
            *_snapshot(counted),
        )


def _snapshot(counted: Statistics) -> tuple[int | None, int | None, bool | None]:
    """How far the snapshot is; nothing, while nobody has looked."""
    if not counted.snapshot_committed and not counted.offsets_known:
        return None, None, None
    return counted.snapshot_known, counted.snapshot_staged, counted.snapshot_committed


def _shown(offsets: Offsets) -> str | None:
    found = sorted((str(partition), offset) for partition, offset in offsets.items())
    return ", ".join(f"{partition or 'all'}: {offset}" for partition, offset in found) or None


def _history(seen: Seen) -> Iterator[Row]:
    names = {each.id: each for each in seen.objects()}
    for oid, source in seen.sources.items():
        each = names.get(oid)
        if each is not None:
            for status in source.history:
                at = datetime.fromtimestamp(status.since_ms / 1000, UTC)
                value = status.condition.value
                yield (each.id, each.name, each.kind, at, value, status.why or None)


VIEWS: Final = (
    SystemView(
        "hw_sources",
        "Sources: how far each is. Counts are since this server started.",
        (
            *OBJECT,
            Column("source_kind", "text", "what it reads from"),
            Column(
                "reliance",
                "text",
                "what upstream must keep: `bounded`, `retained upstream`, `none`",
            ),
            Column(
                "status",
                "text",
                "`starting`, `running`, `stalled`, `failed`, `paused`, `fenced`, `stopped`",
            ),
            Column("status_since", "timestamptz", "since when"),
            Column("detail", "text", "why it is not running"),
            Column("offsets_known", "text", "how far upstream is, by partition"),
            Column("offsets_durable", "text", "how far it is durable here, by partition"),
            Column("offset_lag", "bigint", "how many offsets are between the two"),
            Column("messages", "bigint", "messages read"),
            Column("bytes", "bigint", "their size"),
            Column("updates", "bigint", "updates they became"),
            Column("dead_letters", "bigint", "messages that could not be decoded"),
            Column("races_lost", "bigint", "commits that another attempt had made before"),
            Column(
                "snapshot_known", "bigint", "about how many records were upstream when it was made"
            ),
            Column("snapshot_staged", "bigint", "how many of them this server has read"),
            Column("snapshot_committed", "boolean", "whether all of them are durable"),
        ),
        _sources,
    ),
    SystemView(
        "hw_source_status_history",
        "The newest changes of status of each source, oldest first.",
        (
            *OBJECT,
            Column("occurred_at", "timestamptz", "when"),
            Column("status", "text", "what it changed to"),
            Column("detail", "text", "why"),
        ),
        _history,
    ),
)
