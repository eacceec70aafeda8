"""Objects that nobody will ever refer to are swept while the runtime goes on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headwater.base.clock import ManualClock
from headwater.persist.client import open_location
from headwater.persist.commands import UpperMismatch
from headwater.persist.maintenance import SWEEP_MS
from headwater.testing.awaited import until

SCHEMA = pa.schema([pa.field("k", pa.int64())])
ROWS = 20_000


def _updates(time: int) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(range(ROWS), pa.int64()),
            "__time": pa.array([time] * ROWS, pa.int64()),
            "__diff": pa.array([1] * ROWS, pa.int64()),
        }
    )


def test_what_a_refused_append_left_is_swept_in_time(tmp_path: Path) -> None:
    clock = ManualClock(1)
    with open_location(tmp_path, clock=clock) as client:
        write, read = client.create_or_load("t", SCHEMA)
        write.compare_and_append(_updates(0), 0, 1).result()
        lost = write.compare_and_append(_updates(5), 5, 6).result()
        assert isinstance(lost, UpperMismatch)
        write.seal(2).result()  # An entry after it closes the step of the refused append.
        blob = client.core.blob
        assert len(list(blob.list("part/"))) == 2
        clock.set(1 + 2 * SWEEP_MS)
        write.seal(3).result()  # Wakes the maintenance, as any commit does.
        until(lambda: len(list(blob.list("part/"))) <= 1, "the sweep")
        assert read.snapshot(2).to_table().num_rows == ROWS
