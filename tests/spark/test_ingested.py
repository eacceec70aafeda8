"""A large range read by Spark tasks: the same collection as without them; and nothing small."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.collection.run_layout import LAYOUTS
from headwater.persist.client import Client, open_location
from headwater.persist.errors import CollectionHasErrors
from headwater.persist.spark import background_slots
from headwater.storage import tasks, written_by_tasks
from headwater.storage.dead_letters import Policy
from headwater.storage.decode import Included
from headwater.storage.envelope import Debezium, Envelope, Plain, Upsert
from headwater.storage.format import Json
from headwater.storage.ingestion import Ingestion
from headwater.storage.outputs import Definition, Output
from headwater.storage.sources.files import OUTPUT, Files
from headwater.storage.spark import SparkTasks
from tests.spark.job_ids import job_ids

pytestmark = pytest.mark.spark

SEED = 20261115
ROW = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string())])
PLAIN = Plain(Json(ROW), Policy.FAIL, included=(Included("partition", "file"),))
CHANGES = Debezium(Json(ROW), Policy.SKIP)
NEWEST = Upsert(Json(ROW), ("n",), policy=Policy.SKIP, included=(Included("offset", "at"),))


def write_lines(folder: Path, random: Random) -> None:
    for name in "abc":
        with (folder / name).open("ab") as file:
            for n in range(random.randrange(50, 200)):
                row = b'{"n": %d, "s": "%s"}' % (n, name.encode())
                after = b'{"op": "c", "after": %s, %s' % (row, row[1:])
                file.write((b"bad" if random.random() < 0.02 else after) + b"\n")


def contents(client: Client, name: str) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return the updates of an output with their times, its errors, and the dead letters."""
    snapshot = client.reader(name).snapshot()
    updates: list[Any] = []
    with suppress(CollectionHasErrors):  # With errors there are no rows; the errors are compared.
        updates = [row for table in snapshot.updates() for row in table.to_pylist()]
    letters = client.reader(f"{name}/dead_letters").snapshot().to_table().to_pylist()
    errors = snapshot.errors().to_pylist()
    found: list[Counter[str]] = [Counter(map(str, rows)) for rows in (updates, errors, letters)]
    return found[0], found[1], found[2]


def ingested(root: Path, envelope: Envelope, session: Any, name: str) -> Any:
    """Ingest two ranges; return what came of them."""
    random = Random(SEED)
    folder = root / f"in-{name}"
    folder.mkdir()
    definition = Definition("o", (Output(OUTPUT, "o", envelope),))
    how = None if session is None else partial(SparkTasks, session)
    with open_location(root / f"location-{name}", layouts=LAYOUTS) as client:
        ingestion = Ingestion(client, definition, Files(folder, "lines"), tasks=how)
        for now_ms in (1_000, 2_000):
            write_lines(folder, random)
            assert ingestion.tick(now_ms)
        ingestion.stop()
        statistics = ingestion.statistics
        counts = (statistics.messages, statistics.updates, statistics.dead_letters)
        return (*contents(client, "o"), counts)


@pytest.mark.parametrize("envelope", [PLAIN, CHANGES, NEWEST], ids=["none", "debezium", "upsert"])
def test_tasks_make_the_same_collection(
    spark: Any, tmp_path: Path, envelope: Envelope, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {SEED}")
    here = ingested(tmp_path, envelope, None, "here")
    monkeypatch.setattr(tasks, "MESSAGES_MIN", 1)
    monkeypatch.setattr(written_by_tasks, "FOLD_MIN", 1)
    ran: list[tuple[str, int]] = []
    run = SparkTasks.run

    def counted(self: SparkTasks, work: Any) -> list[bytes]:
        ran.append((type(work[0]).__name__, len(work)))
        return run(self, work)

    monkeypatch.setattr(SparkTasks, "run", counted)
    there = ingested(tmp_path, envelope, spark, "there")
    folded = [("FoldTask", background_slots(spark))] if envelope is NEWEST else []
    assert ran == [("PieceTask", 3), *folded] * 2, "a task a file, and of an upsert a task a share"
    assert there == here
    assert here[2], "there was something that could not be decoded"


def test_a_small_range_starts_no_job(spark: Any, tmp_path: Path) -> None:
    before = job_ids(spark)
    ingested(tmp_path, PLAIN, spark, "small")
    assert not job_ids(spark) - before


def test_what_tasks_cannot_read_is_read_here(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ingested(tmp_path, PLAIN, None, "here")
    monkeypatch.setattr(tasks, "MESSAGES_MIN", 1)

    def fails(self: SparkTasks, work: Any) -> list[bytes]:
        raise RuntimeError("a cluster that is gone")

    monkeypatch.setattr(SparkTasks, "run", fails)
    assert ingested(tmp_path, PLAIN, spark, "there") == here
