"""Run by ``test_speculation.py`` in a process of its own: one process has one SparkContext.

Two workers. Of the task of partition 0 the first attempt writes its object and then straggles, so
that Spark starts a second one on the other worker, which writes an object, too. Which of the two
comes back is told by ``winner``; the other waits until Spark kills it. Prints what was seen, as one
JSON object per winner.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId
from headwater.collection.run_layout import LAYOUTS
from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.persist import spark as edge
from headwater.persist.batch import Part, Segment
from headwater.persist.client import Client, open_location
from headwater.persist.commands import CompareAndAppend
from headwater.persist.core import Settings
from headwater.persist.decision import collection_of
from headwater.persist.inspect import inspect
from headwater.persist.maintenance import Maintenance
from headwater.persist.part import PartName
from headwater.persist.spark_parts import Target

SCHEMA = pa.schema([("n", pa.int64()), ("g", pa.int64())])
ROWS, PARTITIONS = 8000, 4
EAGER = (
    ("spark.speculation", "true"),
    ("spark.speculation.interval", "50ms"),
    ("spark.speculation.quantile", "0.25"),
    ("spark.speculation.multiplier", "1.1"),
    ("spark.speculation.minTaskRuntime", "0ms"),
    # A task that sleeps has no rate; it is its time that is long.
    ("spark.speculation.efficiency.enabled", "false"),
)
Batches = Iterator[pa.RecordBatch]


def straggling(folder: Path, winner: int) -> Callable[[Batches], Batches]:
    """Return what lets just attempt ``winner`` of partition 0 come back, once both have written."""
    signs = str(folder)

    def straggle(batches: Batches) -> Batches:
        import time
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber()
        for batch in batches:
            if context.partitionId() == 0:
                Path(signs, f"written-{attempt}").touch()
                deadline = time.monotonic() + 240
                while attempt != winner or not Path(signs, f"written-{1 - winner}").exists():
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"attempt {attempt} is alone")
                    time.sleep(0.02)
            yield batch

    return straggle


def attempts(keys: set[str], partition: int) -> list[int]:
    """Return which attempts of the task of a partition have written these objects."""
    found = []
    for key in keys:
        name = PartName.parse(key)
        assert name is not None
        _, _, of, attempt, _, _ = name.attempt.split(".")
        if int(of) == partition:
            found.append(int(attempt))
    return sorted(found)


def tasks(session: Any, group: str) -> list[dict[str, Any]]:
    """Return every attempt of every task of a job, as Spark's own books have it."""
    tracker, store = session.sparkContext.statusTracker(), session._jsc.sc().statusStore()
    found = []
    for job in tracker.getJobIdsForGroup(group):
        for stage in tracker.getJobInfo(job).stageIds:
            listed = store.taskList(stage, 0, 1000)
            for number in range(listed.size()):
                task = listed.apply(number)
                found.append(
                    {
                        "partition": task.index(),
                        "attempt": task.attempt(),
                        "speculative": task.speculative(),
                        "host": task.host(),
                        "status": task.status(),
                    }
                )
    return found


def objects(client: Client) -> set[str]:
    return {info.key for info in client.core.blob.list("part/")}


def keys(parts: tuple[Part, ...]) -> set[str]:
    return {part.where.key for part in parts if isinstance(part.where, Segment)}


def story(client: Client, session: Any, folder: Path, winner: int) -> dict[str, Any]:
    core, group = client.core, f"winner-{winner}"
    write, read = client.create_or_load(group, SCHEMA, key=("n",), layout="run")
    frame = session.range(0, ROWS, 1, PARTITIONS).selectExpr(
        "id AS n", "id % 5 AS g", "0L AS __time", "1L AS __diff"
    )
    signs = folder / group
    signs.mkdir(parents=True)
    before = objects(client)
    session.sparkContext.setJobGroup(group, "")
    with core.step() as step:
        target = Target.of(collection_of(core.state, write.id))
        written = edge.written_parts(frame, edge.writing(core, step), target)
        parts = edge.collect_parts(written.mapInArrow(straggling(signs, winner), edge.DESCRIPTORS))
        found = objects(client) - before
        core.submit(
            CompareAndAppend(write.id, BatchId(group), Frontier.of(0), Frontier.of(1), parts)
        ).result()
        in_work = {info.key for info in inspect(core).unfinished}
    client.create_or_load(f"after-{group}", SCHEMA)  # The next entry says that the step is closed.
    leaked = {info.key for info in inspect(core).leaked}
    Maintenance(core).sweep()
    table = read.snapshot(0).to_table()
    return {
        "tasks": tasks(session, group),
        "written": attempts(found, 0),
        "committed": attempts(keys(parts), 0),
        "others": [attempts(found, partition) for partition in range(1, PARTITIONS)],
        "rows": table.num_rows,
        "sum": sum(table.column("n").to_pylist()),
        "in_work": in_work == found - keys(parts),
        "leaked": leaked == found - keys(parts),
        "swept": objects(client) - before == keys(parts),
    }


def main(folder: Path, master: str, extra: list[list[str]]) -> None:
    of_cluster = tuple((key, value) for key, value in extra)
    session = open_session(SparkSettings(master=master, extra=(*of_cluster, *EAGER)))
    with open_location(
        folder / "data", layouts=LAYOUTS, settings=Settings(maintenance=False)
    ) as client:
        for winner in (1, 0):
            print(json.dumps(story(client, session, folder, winner)), flush=True)
    close_session()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
