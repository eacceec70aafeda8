"""The rows of a query, out of Spark, without ever being in its driver's memory together.

    small (by a bound, not by a guess)   collected: one job, no further stage
    else                                 each task writes what it has into a file, batch after
                                         batch, and the files are mapped here

A mapped answer is an Arrow table like any other; its pages are the system's to keep or to drop, so
neither the JVM nor this process grows with it. The files have no name any more when they are
mapped: nothing is left behind, however this process ends.

An answer has a limit (``spark.headwater.result.bytesMax``): a join that yields everything with
everything ends with an error, not with a full disk. Where tasks do not run on this machine (a
cluster) they cannot write here: everything is collected, and Spark's own limit
(``spark.driver.maxResultSize``) holds.

Kept by: this module. Relied on by: ``compute/select.py``.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema

from headwater.base.errors import HeadwaterError
from headwater.compute.ir.plan import Plan
from headwater.compute.ir.size import rows_max
from headwater.compute.session import RESULT_BYTES_MAX, RESULT_MIB_MAX
from headwater.persist.read import Snapshot
from headwater.persist.spark import this_attempt

FEW_ROWS: Final = 1_000
"""So few are collected whatever they are made of."""
COLLECT_ROWS_MAX: Final = 100_000
COLLECT_BYTES_MAX: Final = 16 << 20
"""So much, as it is stored, is collected."""

_TOO_LARGE: Final = "too-large"
"""A file that says so: its task ends without a word."""
_WRITTEN: Final = "partition int, path string"


class ResultTooLarge(HeadwaterError):
    """An answer that is larger than answers may be."""

    condition: str | None = "RESULT_TOO_LARGE"
    sqlstate: str | None = "54000"

    def __init__(self, bytes_max: int) -> None:
        super().__init__(
            f"the result is larger than {bytes_max >> 20} MiB; select less, or raise "
            "query_result_mib"
        )


class NoSpaceForResult(HeadwaterError):
    """The disk on which an answer waits is full."""

    condition: str | None = "NO_SPACE_FOR_RESULT"
    sqlstate: str | None = "53100"

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"there is no space left for the result in {directory}; make some, or choose "
            "another place with TMPDIR"
        )


def is_small(
    plan: Plan,
    snapshots: Mapping[str, Snapshot],
    local: Mapping[str, pa.Table] = MappingProxyType({}),
) -> bool:
    """Whether the answer of a plan over these relations may be collected."""
    rows = {name: given.num_rows for name, given in local.items()}
    input_bytes = sum(given.nbytes for given in local.values())
    for name, snapshot in snapshots.items():
        parts = [part for part in snapshot.parts if not part.errors]
        # A row that is there many times counts as often; what a part holds of other times, too.
        rows[name] = sum(max(part.rows, abs(part.diff_sum)) for part in parts)
        input_bytes += sum(part.size_bytes for part in parts)
    most = rows_max(plan.root, rows)
    if most is None:
        return False
    return most <= FEW_ROWS or (most <= COLLECT_ROWS_MAX and input_bytes <= COLLECT_BYTES_MAX)


def rows_of(session: Any, frame: Any, *, small: bool) -> pa.Table:
    """Run a frame, and return its rows in its order."""
    if small or not session.sparkContext.master.startswith("local"):
        return frame.toArrow()
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    directory = tempfile.mkdtemp(prefix="headwater-result-")
    try:
        # A session of somebody else's has no limit of ours.
        bytes_max = int(session.conf.get(RESULT_BYTES_MAX, str(RESULT_MIB_MAX << 20)))
        # By position: a query may call two columns the same.
        numbered = frame.toDF(*(f"c{place}" for place in range(len(schema))))
        found = numbered.mapInArrow(_writing(directory, bytes_max), _WRITTEN).collect()
        tables = [_mapped(path) for _, path in sorted(found)]
    except Exception as error:
        if Path(directory, _TOO_LARGE).exists():
            raise ResultTooLarge(bytes_max) from error
        if f"[Errno {errno.ENOSPC}]" in str(error):
            raise NoSpaceForResult(str(Path(directory).parent)) from error
        raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if not tables:
        return schema.empty_table()
    return pa.concat_tables(tables).rename_columns(schema.names).cast(schema)


def _mapped(path: str) -> pa.Table:
    with pa.memory_map(path) as file:
        return pa.ipc.open_stream(file).read_all()


def _writing(
    directory: str, bytes_max: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "only a task writes"
        path = f"{directory}/{this_attempt()}"
        first = next(batches, None)
        if first is None:
            return
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, first.schema) as stream:
            stream.write_batch(first)
            for batch in batches:
                stream.write_batch(batch)
                if _written(directory) > bytes_max:
                    Path(directory, _TOO_LARGE).touch()
                    # Not raised, and not returned: Spark sends a worker that has failed, or has
                    # enough, all the rest before it listens to what that has to say.
                    os._exit(1)
        partition = pa.array([context.partitionId()], pa.int32())
        yield pa.RecordBatch.from_pydict({"partition": partition, "path": [path]})

    return write


def _written(directory: str) -> int:
    """Return how much all tasks have written so far."""
    with os.scandir(directory) as entries:
        return sum(entry.stat().st_size for entry in entries)
