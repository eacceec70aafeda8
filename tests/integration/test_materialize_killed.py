"""The real thing: our process and PostgreSQL are killed under load, at random moments.

Meanwhile the shards of the materialization become more and fewer: each key stands at the checkpoint
of the narrowest range that owns it.

PostgreSQL is killed by killing one of its own processes: the server then ends all others at once
and recovers from its log, as after a loss of power. After every kill the endpoint is the view at
its checkpoint's time: the judge reads both in the state in which the kill left them, PostgreSQL in
one transaction, our location read-only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from headwater.materialize.checkpoint import from_checkpoint, from_text
from headwater.materialize.controller import PREFIX
from headwater.materialize.definition import Definition
from headwater.materialize.key_range import KeyHash, KeyRange, key_hashes
from headwater.materialize.tuples import pack
from headwater.persist.client import open_location
from headwater.testing.servers import postgres_server
from tests.integration.materialize_lake import LAKES, IcebergLake
from tests.integration.materialize_story import ACCOUNTS, rows_at
from tests.integration.shared_location import Postgres

pytestmark = pytest.mark.server

WAIT_SECONDS = 60.0
ROOT = Path(__file__).parents[2]


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A server that nobody else needs: it is killed."""
    with postgres_server() as dsn:
        yield Postgres(dsn)


def _owns_some(wide: KeyRange, ranges: Sequence[KeyRange]) -> bool:
    """Whether a key of the range is in none that is narrower: the fence of another one is over."""
    at = int(wide.begin)
    for narrow in sorted(ranges, key=lambda each: each.begin):
        if wide.covers(narrow) and narrow != wide and narrow.begin <= at:
            at = max(at, int(narrow.end) + 1)
    return at <= wide.end


class Standing:
    """Where each key stands, by the fences."""

    def __init__(self, fences: list[tuple[int, int, str]], source: str) -> None:
        self._fences = []
        for begin, end, text in sorted(fences, key=lambda fence: fence[1] - fence[0]):
            position = from_checkpoint(from_text(text), source)
            upper = 0 if position is None else position.time
            self._fences.append((KeyRange(KeyHash(begin), KeyHash(end)), upper))
        ranges = [key_range for key_range, _ in self._fences]
        self.times = {upper for each, upper in self._fences if _owns_some(each, ranges)}

    def uppers(self, keys: Sequence[tuple[Any, ...]]) -> Iterator[int]:
        packed = pa.array([pack(key) for key in keys], pa.large_binary())
        for hashed in key_hashes(packed).tolist():
            yield next(upper for key_range, upper in self._fences if key_range.owns(hashed))


class Story:
    """The process, started again and again on the same location and endpoint."""

    def __init__(self, root: Path, dsn: str, schema: str = "bank") -> None:
        self._root, self._dsn = root, dsn
        self.schema = schema
        self._process: subprocess.Popen[str] | None = None
        if not schema:
            return
        with psycopg.connect(dsn, autocommit=True) as db:
            db.execute("CREATE SCHEMA bank")
        self.ranges_max = 0

    def start(self, seed: int) -> None:
        program = [sys.executable, "-m", "tests.integration.materialize_story"]
        self._process = subprocess.Popen(
            [*program, str(self._root), self._dsn, self.schema, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def read(self, lines: int) -> None:
        """Wait for so many transfers."""
        assert self._process is not None
        assert self._process.stdout is not None
        for _ in range(lines):
            assert self._process.stdout.readline(), "it ended by itself"

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._reap()

    def end(self) -> None:
        """Let it deliver all it has."""
        assert self._process is not None
        self._process.communicate(timeout=WAIT_SECONDS)
        assert self._process.returncode == 0

    def _reap(self) -> None:
        assert self._process is not None
        self._process.communicate()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def kill_postgres(self) -> None:
        with self._connected() as db:
            db.autocommit = True
            (row,) = db.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
            ).fetchall()
        os.kill(row[0], signal.SIGKILL)

    def _connected(self) -> psycopg.Connection[Any]:
        """Connect, as soon as the server has recovered."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return psycopg.connect(self._dsn)
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, "it never came back"
                time.sleep(0.05)

    def judge(self) -> int:
        """Compare endpoint and view; return the checkpoint's time."""
        with self._connected() as db:
            db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            fences = self._select(db, "flow_checkpoints_v1", "key_begin", "key_end", "checkpoint")
            sums = dict(self._select(db, "sums", "account", "amount"))
            log = self._select(db, "log", "account", "seq", "amount", "balance")
            accounts = self._select(db, "accounts", "account", "balance")
        with open_location(self._root, read_only=True) as client:
            stored = client.core.state.items[PREFIX + "m"]
            definition = msgspec.json.decode(stored, type=Definition)
            standing = Standing(fences, definition.source)
            self.ranges_max = max(self.ranges_max, len(fences))

            def view(name: str, *key: int) -> list[tuple[Any, ...]]:
                """Return the rows of a collection, each as of where its key stands."""
                found = []
                for upper in standing.times - {0}:
                    rows = rows_at(client.reader(name), upper - 1)
                    keys = [tuple(row[at] for at in key) for row in rows]
                    owned = zip(rows, standing.uppers(keys), strict=True)
                    found += [row for row, stands in owned if stands == upper]
                return sorted(found)

            assert log == view("transfers", 0, 1)
            assert accounts == view("accounts", 0)
        assert sums == dict(accounts)
        assert sum(sums.values()) == 0 or len(standing.times) > 1
        assert set(sums) <= set(ACCOUNTS)
        return min(standing.times)

    def _select(
        self, db: psycopg.Connection[Any], table: str, *columns: str
    ) -> list[tuple[Any, ...]]:
        query = sql.SQL("SELECT {} FROM {}").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(self.schema, table)
        )
        return sorted(db.execute(query).fetchall())


@pytest.mark.parametrize(
    ("kind", "kills", "seed", "seconds"),
    [
        ("delta", 2, 1, 0.3),
        pytest.param("delta", 30, 2, 0.3, marks=pytest.mark.soak),
        pytest.param("iceberg", 16, 3, 8.0, marks=pytest.mark.soak),
    ],
)
def test_a_lake_has_everything_once(
    tmp_path: Path, kind: str, kills: int, seed: int, seconds: float
) -> None:
    """Killed anywhere, also between two commits of one transaction; then it finishes.

    ``seconds``: how long it has at most, so that there are some; those of Iceberg take their time.
    """
    print(f"seed {seed}")
    random = Random(seed)
    root, lake = tmp_path / "data", LAKES[kind](tmp_path / "lake")
    story = Story(root, f"{kind}:{msgspec.json.encode(lake.config).decode()}", schema="")
    try:
        for _ in range(kills):
            story.start(random.randint(0, 1 << 30))
            story.read(random.randint(20, 60))
            time.sleep(random.random() * seconds)
            story.kill()
        story.start(seed)
        story.read(5)
        story.end()
    finally:
        story.close()

    def rows(table: str, *columns: str) -> list[tuple[Any, ...]]:
        found = lake.rows(table)
        return sorted(zip(*(found[c].to_pylist() for c in columns), strict=True))

    with open_location(root, read_only=True) as client:
        transfers, accounts = client.reader("transfers"), client.reader("accounts")
        upper = transfers.upper.only()
        assert rows("log", "account", "seq", "amount", "balance") == rows_at(transfers, upper - 1)
        assert rows("accounts", "account", "balance") == rows_at(accounts, upper - 1)
        assert rows("sums", "account", "amount") == rows_at(accounts, upper - 1)
    assert upper > 20 * kills
    if isinstance(lake, IcebergLake):
        assert len(lake.table("log").snapshots()) > kills, "it had time to commit"


@pytest.mark.parametrize(("kills", "seed"), [(5, 1), pytest.param(50, 2, marks=pytest.mark.soak)])
def test_nothing_is_lost_or_doubled(
    own_postgres: Postgres, tmp_path: Path, kills: int, seed: int
) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    story = Story(tmp_path / "data", own_postgres.dsn)
    try:
        story.start(seed)
        story.read(20)
        checkpoints = []
        for round_ in range(kills):
            story.read(random.randint(5, 40))
            time.sleep(random.random() * 0.05)
            if round_ % 2:
                story.kill_postgres()
                story.read(random.randint(1, 20))  # It goes on to book, and to try.
            else:
                story.kill()
                checkpoints.append(story.judge())
                story.start(random.randint(0, 1 << 30))
                story.read(10)
            checkpoints.append(story.judge())
        story.end()
        checkpoints.append(story.judge())
    finally:
        story.close()
    assert checkpoints == sorted(checkpoints)
    assert checkpoints[-1] > checkpoints[0] > 0
    assert story.ranges_max > 1, "there were several shards"
