"""Run by ``test_shard_cluster.py`` in a process of its own: one process has one SparkContext.

A server on a cluster of executors, and two deliveries of one table whose shards are tasks there,
because that is the default on a cluster: into SQLite, which is authoritative, and into files, which
follow our log. At a moment of a transaction the executor that carries one of them is killed
(``testing/lost_executors``). After each the endpoints must be the table, with every change once.
Prints what was seen, as one JSON object.

    shard_cluster_story.py FOLDER SOURCE MOMENT:DELIVERY…
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import psycopg
import pyarrow.parquet as pq

from headwater.materialize import runtime
from headwater.server.compose import Server, ServerConfig
from headwater.testing.lost_executors import LostExecutors, When, eventually

MASTER = "local-cluster[2,2,1024]"
runtime.MOVE_SECONDS = 0.5  # type: ignore[misc]


class Story:
    """A table, and where it is delivered to."""

    def __init__(self, server: Server, db: psycopg.Connection[Any], folder: Path) -> None:
        self._server, self._db = server, db
        self._file, self._files = folder / "e.db", folder / "files"
        self.rows = 0
        self.lost = LostExecutors()
        db.execute("CREATE TABLE events (id BIGINT, who TEXT, amount BIGINT)")
        self.insert()
        db.execute(
            f"CREATE MATERIALIZATION rows INTO SQLITE (PATH '{self._file}') ("
            "events AS sums KEY (who) REDUCE (amount sum), "
            "events AS log KEY (id) DELTA UPDATES)".encode()
        )
        db.execute(
            f"CREATE MATERIALIZATION files INTO PARQUET (URL '{self._files}') "
            "(events AS events KEY (id) DELTA UPDATES)".encode()
        )

    def insert(self) -> None:
        self.rows += 1
        self._db.execute("INSERT INTO events VALUES (%s, 'a', 5)", (self.rows,))

    def _shown(self) -> list[tuple[Any, ...]]:
        asked = "SELECT name, status, runs_in, last_error FROM hw_materialization_shards"
        return sorted(self._db.execute(asked).fetchall())

    def delivered(self) -> dict[str, list[int]]:
        """Return which changes each endpoint has."""
        with closing(sqlite3.connect(self._file)) as db:
            sums = [number for (number,) in db.execute("SELECT amount FROM sums").fetchall()]
            log = [number for (number,) in db.execute("SELECT id FROM log ORDER BY id").fetchall()]
        paths = self._files.glob("events/**/*.parquet")
        files = sorted(n for path in paths for n in pq.read_table(path)["id"].to_pylist())
        return {"sums": sums, "log": log, "files": files}

    def wait(self) -> None:
        """Wait until all is delivered, and tasks carry both deliveries."""
        count = self.rows

        def whole() -> bool:
            try:
                found = self.delivered()
            except sqlite3.OperationalError:  # It is not there yet, or locked.
                return False
            return found["sums"] == [5 * count] and len(found["files"]) >= count

        eventually(whole, lambda: (self._shown(), self.delivered()))
        # One may be carried by a thread for a while: with an executor half of the slots are gone.
        both = [("running", "task")] * 2
        eventually(lambda: [each[1:3] for each in self._shown()] == both, self._shown)

    def kill(self, when: When, of: str) -> None:
        """Let the executor that carries a delivery be killed at a moment of the next change."""
        oid = self._db.execute(
            "SELECT object_id FROM hw_materializations WHERE name = %s", (of,)
        ).fetchone()
        assert oid is not None
        found = self._server.materializations.get(oid[0])
        assert found is not None

        self.lost.arm(found, when)
        self.insert()
        eventually(lambda: not self.lost.armed, self._shown)


def main(folder: Path, source: str, moments: list[str]) -> None:
    extra = (("spark.executorEnv.PYTHONPATH", source),)
    config = ServerConfig(folder / "data", port=0, spark_master=MASTER, spark=extra)
    with Server(config) as server:
        address = f"host=127.0.0.1 port={server.wire.port} user=headwater dbname=headwater"
        with psycopg.connect(address, autocommit=True) as db:
            story = Story(server, db, folder)
            story.wait()
            for moment in moments:
                when, _, of = moment.partition(":")
                story.kill(cast("When", when), of)
                story.wait()
            story.insert()
            story.wait()
            seen: dict[str, Any] = {"delivered": story.delivered(), "killed": story.lost.killed}
            seen["meant"] = list(range(1, story.rows + 1))
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
