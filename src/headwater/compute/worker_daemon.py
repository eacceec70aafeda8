"""Spark's daemon of Python workers, with what our tasks need imported before the first is forked.

Each Python stage of a step is a process of its own, forked by this daemon. A worker that imports
Arrow and our operators by itself spends a second or two of CPU before its first row, and holds all
of it in memory of its own; one that is forked from here has both already, in shared pages.

A worker whose JVM has gone has nobody to tell: it ends in silence, where Spark's would print a
stack for each worker at every Ctrl+C. It ends with this daemon, too: the daemon ends with its JVM
and tells its workers, but one that is killed tells nobody, and who computes would go on for nothing
until there is something to say.

``gc.freeze``: a worker collects garbage after every task (PySpark does), which otherwise walks over
every imported module each time.

Started by Spark (``spark.python.daemon.module``); nobody imports it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from functools import partial
from importlib import import_module
from typing import Any, Final

import pyspark.worker  # noqa: F401
from pyspark import daemon

IMPORTED: Final = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "headwater.compute.dataflow.stage",
    "headwater.compute.dataflow.program",
    "headwater.compute.dataflow.ops.accumulate",
    "headwater.compute.dataflow.ops.bag",
    "headwater.compute.dataflow.ops.delta_join",
    "headwater.compute.dataflow.ops.distinct",
    "headwater.compute.dataflow.ops.reduce",
    "headwater.compute.dataflow.ops.semi",
    "headwater.compute.dataflow.ops.stretches",
    "headwater.compute.dataflow.ops.top_k",
    "headwater.persist.blob.file",
)
"""Not those that start threads or open anything: a fork has neither."""

_worker: Final = daemon.worker
_LIBC: Final = ctypes.CDLL(None)
_PR_SET_PDEATHSIG: Final = 1
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE_BYTES: Final = 8 << 20
_ARENAS: Final = 2


def _owned_worker(owner: int, sock: Any, authenticated: bool) -> int:
    """Work, and be ended by the system when the owner has ended; Linux alone can."""
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != owner:  # It has ended before we asked.
            return 1
    return _silent_worker(sock, authenticated)


def _keep_little() -> None:
    """Have large arrays given back to the system when they are freed; only glibc keeps them.

    It learns from every one that is freed to keep the next ones, up to 64 MiB for each thread that
    allocated some: of a first step with ten million rows a worker would keep 60 to 150 MiB.
    """
    tell = getattr(_LIBC, "mallopt", None)
    if tell is not None:
        tell(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        tell(_M_TRIM_THRESHOLD, _LARGE_BYTES)
        tell(_M_ARENA_MAX, _ARENAS)


def _silent_worker(sock: Any, authenticated: bool) -> int:
    try:
        return int(_worker(sock, authenticated))
    except (BrokenPipeError, ConnectionResetError):
        return 1


if __name__ == "__main__":
    daemon.worker = partial(_owned_worker, os.getpid())
    _keep_little()
    for name in IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()
    daemon.manager()
