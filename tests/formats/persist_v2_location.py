"""Writes the golden location of format 2: that of format 1, and an update without rows."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.clock import ManualClock
from headwater.base.ids import BatchId, GlobalId
from headwater.persist import part, trace
from headwater.persist.client import Client, open_location
from headwater.persist.commands import (
    Advance,
    OpenReader,
    OpenWriter,
    ReserveId,
    SetItem,
    UpdateAndDowngrade,
)
from headwater.persist.core import Settings
from headwater.persist.evolution import ERROR_SCHEMA, updates_schema
from headwater.persist.maintenance import Maintenance
from tests.formats.persist_v1_location import FAILED, FIRST, SECOND, UNSEALED

MOVED = "moved"
"""A collection whose writer has moved it, without a row."""


def last_update(gid: GlobalId) -> UpdateAndDowngrade:
    """Return what that writer asked for; its retry is already done."""
    return UpdateAndDowngrade(gid, "writer-2", BatchId("update-1"), (), Frontier.of(7))


def write(root: Path) -> None:
    """Write the location, and leave it as a crash would."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trace, "MERGE_AT_LEAST", 2)
        client = open_location(
            root,
            holder="pid 1 on golden",
            clock=ManualClock(1_700_000_000_000),
            settings=Settings(maintenance=False),
        )
        patched.setattr(part, "INLINE_BYTES_MAX", 0)
        _fill(client)
        client.core.stop(release=False)


def _fill(client: Client) -> None:
    maintenance = Maintenance(client.core)
    orders, _ = client.create_or_load("orders", FIRST, key=("k",))
    rows = [({"k": 1, "v": "ann"}, 3, 1), ({"k": 9, "v": "gone"}, 4, 1)]
    orders.compare_and_append(rows, 0, 5).result()
    orders.compare_and_append([({"k": 9, "v": "gone"}, 6, -1)], 5, 7).result()
    orders.allow_compaction(6).result()
    maintenance.merge_all()
    # The inputs of that merge stay in blob, as garbage that the log knows.
    maintenance.roll_up(force=True)
    part.INLINE_BYTES_MAX = 1 << 20  # type: ignore[misc]
    orders.write([({"k": 2, "v": None}, 12, 1), ({"k": 1, "v": "ann"}, 13, -1)]).result()
    orders.seal(13).result()
    orders.seal(15).result()
    orders, _ = client.create_or_load("orders", SECOND, key=("k",))
    orders.compare_and_append([({"k": 3, "v": "cy", "w": 0.5}, 20, 1)], 15, 21).result()
    orders.write([(UNSEALED, 29, 1)]).result()
    failed, _ = client.create_or_load("failed", FIRST)
    columns = [["DIVIDE_BY_ZERO"], [FAILED], [None], [1], [1]]
    errors = pa.table(columns, schema=updates_schema(ERROR_SCHEMA))
    failed.compare_and_append([], 0, 3, errors=errors).result()
    client.create_or_load("doomed", FIRST)
    client.destroy("doomed")
    core = client.core
    core.submit(Advance("main", 100)).result()
    table, _ = client.create_or_load("table", FIRST, timeline="main")
    core.submit(Advance("main", 110)).result()
    core.submit(OpenReader(orders.id, "reader-1", "view", Frontier.of(10))).result()
    core.submit(OpenWriter(GlobalId(failed.id), "writer-1", "ingest", lease_ms=1_000)).result()
    core.submit(ReserveId()).result()
    core.submit(SetItem("catalog/1", b"value")).result()
    moved, _ = client.create_or_load(MOVED, FIRST)
    core.submit(OpenWriter(moved.id, "writer-2", "ingest")).result()
    core.submit(last_update(moved.id)).result()
    assert table.upper == Frontier.of(110)


def pack(root: Path, target: Path) -> None:
    """Store a location as one small file, the same for the same content."""
    with tarfile.open(target, "w:gz", compresslevel=9) as archive:
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            info = tarfile.TarInfo(path.relative_to(root).as_posix())
            data = path.read_bytes()
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
