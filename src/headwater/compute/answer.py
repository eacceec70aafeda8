"""The rows of a query, out of Spark, without ever being in its driver's memory together.

    small (by a bound, not by a guess)   collected: one job, no further stage
    else                                 each task writes what it has into a file, batch after
                                         batch (in the JVM), and the files are mapped here

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
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from headwater.base.errors import HeadwaterError
from headwater.base.scratch import Scratch
from headwater.compute import columns
from headwater.compute.catalyst.jvm import java_object
from headwater.compute.ir.plan import Plan
from headwater.compute.ir.size import rows_max
from headwater.compute.session import RESULT_BYTES_MAX, RESULT_MIB_MAX
from headwater.persist.read import Snapshot
from headwater.persist.spark import frame_rows

FEW_ROWS: Final = 1_000
"""So few are collected whatever they are made of."""
COLLECT_ROWS_MAX: Final = 100_000
COLLECT_BYTES_MAX: Final = 16 << 20
"""So much, as it is stored, is collected."""

CLASSES: Final = ("ResultWriter", "Results")
"""Of ``columns/java``, in the order in which they need each other."""

_TOO_LARGE: Final = "too-large"
"""A file that says so."""


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
        return frame_rows(frame)
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    waiting = Scratch("result")
    directory = str(waiting.path)
    try:
        # A session of somebody else's has no limit of ours.
        bytes_max = int(session.conf.get(RESULT_BYTES_MAX, str(RESULT_MIB_MAX << 20)))
        java = java_object(session, CLASSES, columns.__package__, shipped=True)
        found = java.write(frame._jdf, directory, bytes_max, _TOO_LARGE).splitlines()
        files = sorted((int(partition), path) for partition, path in map(_file, found))
        tables = [_mapped(path) for _, path in files]
    except Exception as error:
        if (waiting.path / _TOO_LARGE).exists():
            raise ResultTooLarge(bytes_max) from error
        if os.strerror(errno.ENOSPC) in str(error):
            raise NoSpaceForResult(str(waiting.path.parent)) from error
        raise
    finally:
        waiting.close()
    if not tables:
        return schema.empty_table()
    return pa.concat_tables(tables).cast(schema)


def _file(said: str) -> list[str]:
    return said.split(" ", 1)


def _mapped(path: str) -> pa.Table:
    with pa.memory_map(path) as file:
        return pa.ipc.open_stream(file).read_all()
