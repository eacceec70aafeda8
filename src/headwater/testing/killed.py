"""A process that writes until it is killed, and tells what it was told.

It owns a location on real files and, as fast as it can, appends pairs of rows to two collections
atomically, and writes rows ahead of the seal to a third. It sends the number of a row through a
pipe *after* its future resolved: whoever kills it knows a set of numbers that must be found, each
once, pairs never torn. Merges, rollups and garbage collection run beside, more often than usual, so
that a kill meets them too.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.retry import RetryPolicy
from headwater.persist.client import Client, ReadHandle, open_location
from headwater.persist.commands import Outcome
from headwater.persist.core import Settings
from headwater.persist.errors import Fenced
from headwater.persist.part import read_part

SCHEMA: Final = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("v", pa.string())])
PAIR: Final = ("left", "right")
AHEAD: Final = "ahead"
"""Its rows are written at a time that is never sealed while the writers live."""

FAR: Final = 10**12
REENTRANCE: Final = "killed"
OUTSTANDING_MAX: Final = 6
SETTINGS: Final = Settings(rollup_entries=12, retry=RetryPolicy(attempts_max=8))


def open_writer(root: Path, *, take_over: bool = False) -> Client:
    """Open the location as its owner."""
    return open_location(root, reentrance_id=REENTRANCE, take_over=take_over, settings=SETTINGS)


def write_until_killed(root: Path, acknowledged: Connection, take_over: bool) -> None:
    """Write, and send each number that is durable; ends only by a kill or a fence.

    What is sent: ``(collection, n)``, ``"left"`` standing for the pair.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this one ends
    try:
        _write(open_writer(root, take_over=take_over), acknowledged)
    except Fenced:
        acknowledged.send("fenced")
        sys.exit(3)


def _write(client: Client, acknowledged: Connection) -> None:
    left, right, ahead = (client.create_or_load(n, SCHEMA)[0] for n in (*PAIR, AHEAD))
    upper = left.upper.only()
    serial = client.core.epoch * 1_000_000
    waiting: deque[tuple[str, int, Future[Outcome]]] = deque()
    while True:
        # Every tenth is too large for the log, and becomes an object.
        text = "x" * 9_000 if upper % 10 == 0 else "x"
        pair = client.atomic()
        for handle in (left, right):
            pair.compare_and_append(handle, [({"n": upper, "v": text}, upper, 1)], upper, upper + 1)
        waiting.append((PAIR[0], upper, pair.commit()))
        serial += 1
        waiting.append((AHEAD, serial, ahead.write([({"n": serial, "v": text}, FAR, 1)])))
        if upper > 20 and upper % 7 == 0:
            for handle in (left, right):
                handle.allow_compaction(upper - 20)
        upper += 1
        while len(waiting) > OUTSTANDING_MAX:
            name, number, future = waiting.popleft()
            future.result()
            acknowledged.send((name, number))


def found(client: Client) -> dict[str, Counter[int]]:
    """Return the numbers that are in each collection, sealed or not, with multiplicities."""
    names = client.core.state.names
    return {
        name: _counted(_rows(client, name)) if name in names else Counter()
        for name in (*PAIR, AHEAD)
    }


def _counted(rows: Iterator[tuple[int, int]]) -> Counter[int]:
    counted: Counter[int] = Counter()
    for number, diff in rows:
        counted[number] += diff
    return counted


def _rows(client: Client, name: str) -> Iterator[tuple[int, int]]:
    gid = client.core.state.names[name]
    if name == AHEAD:
        # Reading needs a seal, and a seal would end the writing: read what it would seal.
        collection = client.core.state.collections[gid]
        unsealed = [part for item in collection.unsealed for part in item.parts]
        for part in unsealed:
            table = read_part(
                part, collection, fetch=client.core.cache.fetch, layouts=client.core.layouts
            )
            for update in table.to_pylist():
                yield update["n"], update["__diff"]
        return
    reader = ReadHandle(client.core, gid)
    if reader.upper != Frontier.of(0):
        for row in reader.snapshot().to_table().to_pylist():
            yield row["n"], row["__diff"]


def complaints(present: dict[str, Counter[int]], told: set[tuple[str, int]]) -> Iterator[str]:
    """Name what was acknowledged and is not there once, and pairs that are torn."""
    for name, numbers in present.items():
        for number, count in numbers.items():
            if count != 1:
                yield f"{name} {number} is there {count} times"
    if present[PAIR[0]] != present[PAIR[1]]:
        yield f"torn pairs: {set(present[PAIR[0]]) ^ set(present[PAIR[1]])}"
    for name, number in sorted(told):
        if not present[name][number]:
            yield f"{name} {number} was acknowledged and is lost"
