"""A process whose Spark task computes for as long as it is let; it is there to be killed.

Run as a program: it writes the numbers of its JVM, of the daemon of Python workers and of the
worker that is busy into the file that is its argument.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.compute.session import SparkSettings, open_session


def main(told: Path) -> None:
    """Compute for ever."""
    session = open_session(SparkSettings(cores=1))
    jvm = session.sparkContext._gateway.proc.pid

    def busy(batches: Iterator[Any]) -> Iterator[Any]:
        part = told.with_suffix(".part")
        part.write_text(f"{jvm} {os.getppid()} {os.getpid()}")
        part.rename(told)
        time.sleep(3600)
        yield from batches

    session.range(0, 1, 1, 1).mapInArrow(busy, "id bigint").collect()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
