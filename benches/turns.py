"""What a point SELECT and a one-row INSERT cost in two trees, in turns: ``turns.py ../before``.

A server of this tree and one of another (a checkout of an older commit) are asked in blocks, one
after the other, in rounds; the CPU is that of the server's processes, ended threads and children
included. The machine is then the same for both. Median and spread of the rounds are printed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
from measure import TICKS_PER_S

from headwater.testing.free_ports import free_ports

ROUNDS = 20
BLOCK = 400
HERE = Path(__file__).resolve().parents[1]


class Tree:
    """A server of one checkout."""

    def __init__(self, stack: ExitStack, sources: Path) -> None:
        data = stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-turns-"))
        (port,) = free_ports(1)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headwater", "serve", "--data", data, "--port", str(port)],
            env={**os.environ, "PYTHONPATH": str(sources / "src")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(self._process.wait)
        stack.callback(self._process.terminate)
        self.session = self._connected(port)
        stack.callback(self.session.close)
        self.session.execute("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
        self.rows = 0

    def _connected(self, port: int) -> psycopg.Connection[Any]:
        where = f"host=127.0.0.1 port={port} user=headwater"
        for _ in range(600):
            try:
                return psycopg.connect(where, autocommit=True)
            except psycopg.OperationalError:
                time.sleep(0.1)
        raise SystemExit("the server does not answer")

    def cpu_s(self) -> float:
        """Return what the server's process has used, ended children included."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text("utf-8")
        return sum(map(int, stat.rpartition(")")[2].split()[11:15])) / TICKS_PER_S

    def insert(self) -> None:
        """Insert one row."""
        self.session.execute("INSERT INTO t VALUES (%s, 'a')", (self.rows,))
        self.rows += 1

    def select(self) -> None:
        """Read one row by its key."""
        self.session.execute("SELECT v FROM t WHERE k = %s", (self.rows // 2,)).fetchall()


def main() -> None:
    """Ask both, and print."""
    others = [Path(argument) for argument in sys.argv[1:]]
    with ExitStack() as stack:
        trees = {str(path): Tree(stack, path) for path in (HERE, *others)}
        time.sleep(20)  # Until Spark is there in each, and nothing is started any more.
        costs: dict[tuple[str, str], list[float]] = {}
        for number in range(ROUNDS + 2):
            for name in list(trees)[:: 1 if number % 2 else -1]:
                tree = trees[name]
                for what, do in (("insert", tree.insert), ("select", tree.select)):
                    before = tree.cpu_s()
                    for _ in range(BLOCK):
                        do()
                    if number >= 2:  # The first rounds warm up.
                        took = (tree.cpu_s() - before) / BLOCK * 1000
                        costs.setdefault((what, name), []).append(took)
    for (what, name), each in sorted(costs.items()):
        low, *_, high = statistics.quantiles(each, n=10)
        print(
            f"{what} {Path(name).name:8} median {statistics.median(each):.3f} ms CPU, "
            f"tenth to ninth decile {low:.3f} to {high:.3f}, {len(each)} rounds of {BLOCK}"
        )


if __name__ == "__main__":
    main()
