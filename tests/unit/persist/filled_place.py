"""A location with something committed, and whether it is still there and usable.

Whatever a test does to it, afterwards what was committed reads the same, the location takes writes,
and opening it again shows both.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from headwater.base.clock import ManualClock
from headwater.base.retry import RetryPolicy
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.commands import Advance, Done
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.read import Snapshot

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
SETTINGS = Settings(maintenance=False, retry=RetryPolicy(attempts_max=2))
NOISE = "".join(chr(code) for code in Random(7).choices(range(33, 126), k=40_000))
"""Too large for the log, and not to be compressed."""

Row = tuple[dict[str, Any], int, int]
FIRST: Row = ({"k": 1, "v": "inline"}, 1, 1)
LARGE: Row = ({"k": 2, "v": NOISE}, 4, 1)


Place = Path | tuple[MemoryBlob, MemoryConsensus]


def start(place: Place, **options: Any) -> Client:
    if isinstance(place, Path):
        where: dict[str, Any] = {"location": place}
    else:
        where = {"blob": place[0], "consensus": place[1]}
    return open_location(**where, clock=ManualClock(1_000), settings=SETTINGS, **options)


def fill(place: Place) -> None:
    """Commit two rows: one in the log, one in blob; compacted to 3, sealed to 5."""
    with start(place) as client:
        write, _ = client.create_or_load("orders", SCHEMA, key=("k",))
        write.compare_and_append([FIRST], 0, 3).result()
        write.compare_and_append([LARGE], 3, 5).result()
        write.allow_compaction(3).result()
        client.create_or_load("gone", SCHEMA)
        client.destroy("gone")
        closed, _ = client.create_or_load("closed", SCHEMA)
        closed.seal(None).result()
        client.core.submit(Advance("main", 10)).result()


def keys(snapshot: Snapshot) -> set[int]:
    return set(snapshot.to_table().column("k").to_pylist())


def check_usable(place: Place) -> None:
    """What was committed is there, and the location goes on."""
    with start(place, take_over=True) as client:
        write, read = client.create_or_load("orders", SCHEMA, key=("k",))
        upper = read.upper.only()
        assert keys(read.snapshot(4)) == {1, 2}
        assert write.compare_and_append([({"k": 9}, upper, 1)], upper, upper + 1).result() == Done()
        assert keys(read.snapshot(upper)) >= {1, 2, 9}
    with start(place, read_only=True) as client:
        assert keys(client.reader("orders").snapshot(upper)) >= {1, 2, 9}


def orders(client: Client) -> Any:
    return client.create_or_load("orders", SCHEMA, key=("k",))[0]
