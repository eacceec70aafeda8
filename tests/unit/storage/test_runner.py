"""A source's status: it stalls visibly, goes on by itself, and fails with its remedy."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headwater.base.clock import ManualClock
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.storage.envelope import Plain
from headwater.storage.format import Json
from headwater.storage.ingestion import Ingestion
from headwater.storage.outputs import Definition, Output
from headwater.storage.runner import Runner
from headwater.storage.sources.files import OUTPUT, Files

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])
DEFINITION = Definition("f", (Output(OUTPUT, "numbers", Plain(Json(SCHEMA))),))


def opened(clock: ManualClock) -> Client:
    return open_location(
        blob=MemoryBlob(),
        consensus=MemoryConsensus(),
        clock=clock,
        settings=Settings(maintenance=False),
        layouts=LAYOUTS,
    )


def numbers(client: Client) -> list[int]:
    table = client.reader("numbers").snapshot().to_table()
    return sorted(table.column("n").to_pylist())


def now(runner: Runner) -> str:
    return runner.status.condition.value


def test_it_stalls_goes_on_and_fails(tmp_path: Path) -> None:
    clock, directory = ManualClock(1_000), tmp_path / "in"
    with opened(clock) as client:
        runner = Runner(lambda: Ingestion(client, DEFINITION, Files(directory, "lines")), clock)
        assert now(runner) == "starting"

        wait = runner.once()  # the directory is not there yet
        assert wait is not None
        assert now(runner) == "stalled"
        assert "create it, or mount it" in runner.status.why
        assert not runner.status.why.startswith("source "), "who shows it has its name"

        directory.mkdir()
        (directory / "a").write_text('{"n": 1}\n')
        clock.set(2_000)
        assert runner.once() == 1_000
        assert now(runner) == "running"
        assert numbers(client) == [1]

        directory.rename(tmp_path / "away")
        clock.set(3_000)
        runner.once()
        assert now(runner) == "stalled"
        assert numbers(client) == [1]
        (tmp_path / "away").rename(directory)
        with (directory / "a").open("a") as file:
            file.write('{"n": 2}\n')
        clock.set(4_000)
        runner.once()
        assert numbers(client) == [1, 2]
        counted = runner.statistics
        assert (counted.messages, counted.updates) == (2, 2), "counted on, over the stall"
        assert (counted.snapshot_staged, counted.snapshot_committed) == (1, True)

        (directory / "a").write_text("")
        clock.set(5_000)
        assert runner.once() is None
        assert now(runner) == "failed"
        assert runner.status.why.startswith("file 'a' shrank"), runner.status.why
        assert "or drop the source" in runner.status.why
        assert numbers(client) == [1, 2]
        assert [s.condition.value for s in runner.history] == [
            "starting",
            "stalled",
            "running",
            "stalled",
            "running",
            "failed",
        ]


def test_a_second_runner_fences_the_first(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    with opened(clock) as client:
        runners = [
            Runner(lambda: Ingestion(client, DEFINITION, Files(tmp_path, "lines")), clock)
            for _ in range(2)
        ]
        assert runners[0].once()
        assert runners[1].once()
        clock.set(2_000)
        assert runners[0].once() is None
        assert now(runners[0]) == "fenced"


def test_statistics_tell_of_the_snapshot_and_of_what_came_since(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    line = b'{"n": 1, "and": "%s"}\n' % (b"x" * 79)
    (tmp_path / "a").write_bytes(line * 3 + b"bad\n")
    with opened(clock) as client:
        ingestion = Ingestion(client, DEFINITION, Files(tmp_path, "lines"))
        found = ingestion.statistics
        assert (found.snapshot_known, found.snapshot_committed) == (None, False)
        assert ingestion.tick(clock.now_ms())
        assert (found.snapshot_known, found.snapshot_staged, found.snapshot_committed) == (
            3,
            4,
            True,
        )
        assert (found.messages, found.updates, found.dead_letters, found.lag) == (4, 3, 1, 0)
        with (tmp_path / "a").open("ab") as file:
            file.write(line)
        clock.set(2_000)
        assert ingestion.tick(clock.now_ms())
        assert (found.messages, found.snapshot_staged) == (5, 4)
        assert found.offsets_known == found.offsets_committed == ingestion.resumption.offsets
        ingestion.stop()
        again = Ingestion(client, DEFINITION, Files(tmp_path, "lines"))
        assert again.statistics.snapshot_committed
        again.stop()
