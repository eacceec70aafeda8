"""Ingesting processes really killed (kill -9) under load: nothing lost, nothing doubled or torn."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from headwater.base.clock import SystemClock
from headwater.persist.client import Client
from headwater.persist.state import violations
from headwater.storage.offsets import Offsets
from headwater.storage.outputs import Definition
from headwater.storage.stored_remap import read_remap
from tests.simulation.storage_killed import (
    AUCTIONS,
    KEYS,
    LINES,
    STREAM,
    ingest_until_killed,
    ingestions,
    open_writer,
)

pytestmark = pytest.mark.server  # It starts processes of ours.

SEED = 20261115
KILLS = 5


def append_lines(random: Random, root: Path, written: dict[str, list[bytes]]) -> None:
    """Append some lines, some of them undecodable, perhaps in a new file."""
    name = random.choice(["a", "b", f"f{random.randrange(50)}"])
    lines = [
        b"bad" if random.random() < 0.1 else b'{"k": %d, "n": %d}' % (random.randrange(9), n)
        for n in range(random.randrange(1, 30))
    ]
    with (root / "in" / name).open("ab") as file:
        file.write(b"".join(line + b"\n" for line in lines))
    written.setdefault(name, []).extend(lines)


def rows(client: Client, name: str, as_of: int | None = None) -> Counter[tuple[Any, ...]]:
    table = client.reader(name).snapshot(as_of).to_table()
    found: Counter[tuple[Any, ...]] = Counter()
    for row in table.to_pylist():
        diff = row.pop("__diff")
        found[tuple(row.values())] += diff
    return +found


def check_auctions(client: Client) -> None:
    """At every binding the three outputs are those of one frontier, transaction by transaction."""
    bound = read_remap(client.reader(AUCTIONS.remap))
    upper = client.reader("bid").upper.only()
    times = [b.time for b in bound.bindings if b.time < upper]
    for time in times[-1:]:
        places = np.arange(bound.at(time)["0"], dtype=np.int64)
        must: dict[str, Counter[tuple[Any, ...]]] = {n: Counter() for n in STREAM.outputs}
        for output, at, payload in STREAM.at(places):
            assert len(at) == payload.num_rows
            for row in payload.to_pylist():
                diff = row.pop("__diff")
                must[output][tuple(row.values())] += diff
        for output, counted in must.items():
            assert all(count >= 0 for count in counted.values()), "the stream itself is sound"
            assert rows(client, output, time) == +counted, output


def check_lines(client: Client, written: dict[str, list[bytes]]) -> None:
    all_lines = [line for lines in written.values() for line in lines]
    values = Counter(line for line in all_lines if line != b"bad")
    found = Counter(
        b'{"k": %d, "n": %d}' % row for row, n in rows(client, "lines").items() for _ in range(n)
    )
    assert found == values
    letters = client.reader(LINES.dead_letters).snapshot().to_table()
    places = list(
        zip(*(letters.column(c).to_pylist() for c in ("partition", "offset")), strict=True)
    )
    assert len(set(places)) == len(places) == sum(line == b"bad" for line in all_lines)


def check_keys(client: Client, written: dict[str, list[bytes]]) -> None:
    """One row a key, and one that was written."""
    found = rows(client, "keys")
    assert set(found.values()) <= {1}
    assert len({row[0] for row in found}) == len(found)
    all_lines = {line for lines in written.values() for line in lines}
    assert all(b'{"k": %d, "n": %d}' % row in all_lines for row in found)


def finished(client: Client, root: Path, start_ms: int) -> None:
    """Ingest what is left."""
    clock = SystemClock()
    for ingestion in ingestions(client, root, start_ms):
        while ingestion.statistics.lag or not ingestion.tick(clock.now_ms()):
            ingestion.tick(clock.now_ms())
        ingestion.stop()


def test_killed_again_and_again(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.simulation.storage_killed", "pyarrow.parquet", "pandas"])
    random, written = Random(SEED), dict[str, list[bytes]]()
    print(f"seed {SEED}")
    (tmp_path / "in").mkdir()
    start_ms, best = SystemClock().now_ms(), [Offsets()] * 3
    for kill in range(KILLS):
        told, theirs = context.Pipe(duplex=False)
        child = context.Process(
            target=ingest_until_killed, args=(tmp_path, start_ms, theirs), daemon=True
        )
        child.start()
        theirs.close()
        for _ in range(random.choice([1, 2, 5])):
            append_lines(random, tmp_path, written)
            best = [Offsets(offsets) for offsets in told.recv()]
        append_lines(random, tmp_path, written)
        child.kill()
        child.join()
        with open_writer(tmp_path) as client:
            assert not list(violations(client.core.state)), f"kill {kill}"
            for definition, durable in zip((AUCTIONS, LINES, KEYS), best, strict=True):
                check_durable(client, definition, durable)
            check_auctions(client)
    with open_writer(tmp_path) as client:
        finished(client, tmp_path, start_ms)
        check_auctions(client)
        check_lines(client, written)
        check_keys(client, written)


def check_durable(client: Client, definition: Definition, told: Offsets) -> None:
    """What a process told to be durable is bound, and the outputs are past it."""
    assert told <= read_remap(client.reader(definition.remap)).latest
