"""Writes the golden location of format 1, and says what must be found in it.

A little of everything: parts in the log and in blob, a merged batch, a part that a seal cut in two,
an unsealed write, a rollup and entries after it, an evolved schema, an error, a destroyed name, a
table on a timeline, capabilities, garbage that was not collected yet, and a role whose holder died.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.clock import ManualClock
from headwater.base.ids import GlobalId
from headwater.persist import part, trace
from headwater.persist.client import Client, open_location
from headwater.persist.commands import Advance, OpenReader, OpenWriter, ReserveId, SetItem
from headwater.persist.core import Settings
from headwater.persist.evolution import ERROR_SCHEMA, updates_schema
from headwater.persist.maintenance import Maintenance

FIRST = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
SECOND = pa.schema([*FIRST, pa.field("w", pa.float64())])

ORDERS: dict[int, list[dict[str, Any]]] = {
    12: [{"k": 1, "v": "ann", "w": None}, {"k": 2, "v": None, "w": None}],
    20: [{"k": 2, "v": None, "w": None}, {"k": 3, "v": "cy", "w": 0.5}],
}
"""The rows of the collection ``orders`` at these times."""
UNSEALED = {"k": 4, "v": "later", "w": None}
"""A row that becomes visible when 30 is sealed."""
FAILED = "division by zero"


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
    assert table.upper == Frontier.of(110)


def pack(root: Path, target: Path) -> None:
    """Store a location as one small file, the same for the same content."""
    with tarfile.open(target, "w:gz", compresslevel=9) as archive:
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            info = tarfile.TarInfo(path.relative_to(root).as_posix())
            data = path.read_bytes()
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def unpack(source: Path, root: Path) -> None:
    """Make the location again."""
    with tarfile.open(source) as archive:
        archive.extractall(root, filter="data")
