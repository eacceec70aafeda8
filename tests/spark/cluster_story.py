"""Run by ``test_cluster.py`` in a process of its own: one process has one SparkContext.

A cluster of two executor processes. The first attempt of one task writes its object and then kills
its own executor, as a machine that dies: Spark runs the task again elsewhere. Prints what was seen,
as one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId
from headwater.collection.run_layout import LAYOUTS
from headwater.compute.controller import ViewController
from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.persist import spark as edge
from headwater.persist.batch import Segment
from headwater.persist.client import open_location
from headwater.persist.commands import CompareAndAppend
from headwater.persist.core import Settings
from headwater.persist.decision import collection_of
from headwater.persist.maintenance import Maintenance
from headwater.persist.spark_parts import Target

SCHEMA = pa.schema([("n", pa.int64()), ("g", pa.int64())])
ROWS = 8000
SQL = "SELECT a.g, sum(b.n) AS n, count(*) AS c FROM c AS a JOIN c AS b ON a.n = b.n GROUP BY a.g"


def die_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass descriptors on, but for the first attempt of task 0, whose executor dies."""
    import os
    import signal

    from pyspark import TaskContext

    context = TaskContext.get()
    for batch in batches:
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            # This worker was forked by a daemon that the executor's JVM has started.
            status = Path("/proc", str(os.getppid()), "stat").read_text()
            os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGKILL)
        yield batch


def main(folder: Path, python_path: str) -> None:
    settings = SparkSettings(
        master="local-cluster[2,1,1024]",
        extra=(("spark.executorEnv.PYTHONPATH", python_path),),
    )
    session = open_session(settings)
    options = Settings(maintenance=False)
    with open_location(folder, layouts=LAYOUTS, settings=options) as client:
        write, read = client.create_or_load("c", SCHEMA, key=("n",), layout="run")
        frame = session.range(0, ROWS, 1, 4).selectExpr(
            "id AS n", "id % 5 AS g", "0L AS __time", "1L AS __diff"
        )
        core = client.core
        with core.step() as step:
            target = Target.of(collection_of(core.state, write.id))
            written = edge.written_parts(frame, edge.writing(core, step), target)
            parts = edge.collect_parts(written.mapInArrow(die_first, edge.DESCRIPTORS))
            objects = [info.key for info in core.blob.list("part/")]
            core.submit(
                CompareAndAppend(write.id, BatchId("t"), Frontier.of(0), Frontier.of(1), parts)
            ).result()
        controller = ViewController(client, session)
        controller.create_view("v", SQL)
        controller.run_once()
        Maintenance(core).sweep()
        kept = {info.key for info in core.blob.list("part/")}
        ours = {part.where.key for part in parts if isinstance(part.where, Segment)}
        view = client.reader("v").snapshot(0).to_table()
        seen = {
            "rows": read.snapshot(0).to_table().num_rows,
            "parts": len(parts),
            "objects": len(objects),
            "swept": sorted(set(objects) - ours) == sorted(set(objects) - kept),
            "failures": list(controller.failures().values()),
            "view": sorted(view.drop_columns(["__diff"]).to_pylist(), key=lambda row: row["g"]),
        }
    close_session()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
