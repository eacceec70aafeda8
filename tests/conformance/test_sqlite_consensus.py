"""What is SqliteConsensus's own: processes, read-only opening, full disks, strangers' files."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from headwater.base.errors import Determinate, Indeterminate, InvalidUsage
from headwater.base.ids import SeqNo
from headwater.persist.consensus import SqliteConsensus, open_consensus
from headwater.persist.errors import NewerFormat
from headwater.persist.location import Committed, LogEntry, LostRace

Unprivileged = Callable[[], AbstractContextManager[None]]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def fill(path: Path, count: int) -> None:
    with closing(SqliteConsensus(path)) as log:
        for number in range(count):
            assert log.append(SeqNo(number), b"%d" % number) == Committed()


def listing(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}


APPENDER = """
import json, sys
from pathlib import Path
from headwater.persist.consensus import SqliteConsensus
from headwater.persist.location import Committed

log, won = SqliteConsensus(Path(sys.argv[1])), []
print("ready", flush=True)
sys.stdin.readline()
while len(won) < 100:
    head = log.head()
    number = 0 if head is None else head + 1
    if log.append(number, sys.argv[2].encode()) == Committed():
        won.append(number)
print(json.dumps(won))
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def test_processes_race(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    processes = [start(APPENDER, str(path), str(number)) for number in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outcomes = [json.loads(process.communicate()[0]) for process in processes]
    assert sorted(n for won in outcomes for n in won) == list(range(300))
    with closing(SqliteConsensus(path)) as log:
        for entry in log.scan(SeqNo(0), 1_000):
            assert entry.seqno in outcomes[int(entry.data)]


KILLED = """
import sys
from pathlib import Path
from headwater.persist.consensus import SqliteConsensus

log = SqliteConsensus(Path(sys.argv[1]))
for number in range(1_000_000):
    log.append(number, b"x" * 500)
    print(number, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    process = start(KILLED, str(path))
    assert process.stdout is not None
    for _ in range(50):
        process.stdout.readline()
    process.kill()
    # Not communicate(), which does not know what readline() has read ahead.
    acknowledged = 49 + process.stdout.read().count("\n")
    process.communicate()

    before = listing(tmp_path)
    with closing(SqliteConsensus(path, read_only=True)) as reader:
        head = reader.head()
        assert head in (acknowledged, acknowledged + 1), "the last may have died unacknowledged"
        assert len(reader.scan(SeqNo(0), 1_000_000)) == head + 1
    assert listing(tmp_path).keys() == before.keys()
    with closing(SqliteConsensus(path)) as log:
        assert log.head() == head
        assert log.append(SeqNo(head + 1), b"") == Committed()


def test_many_make_one_log(tmp_path: Path) -> None:
    def make(number: int) -> bool:
        with closing(SqliteConsensus(tmp_path / "d" / "log.sqlite")) as log:
            return log.append(SeqNo(0), b"%d" % number) == Committed()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(make, range(8))).count(True) == 1
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["log.sqlite"]


def test_reading_a_closed_log_touches_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "log.sqlite", 5)
    before = listing(tmp_path)
    with closing(SqliteConsensus(tmp_path / "log.sqlite", read_only=True)) as reader:
        assert reader.head() == 4
        assert len(reader.scan(SeqNo(0), 10)) == 5
        assert listing(tmp_path) == before
    assert listing(tmp_path) == before


def test_a_reader_sees_each_commit_of_writers_that_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    fill(path, 1)
    with closing(SqliteConsensus(path, read_only=True)) as reader:
        assert reader.head() == 0
        for session in range(3):
            with closing(SqliteConsensus(path)) as writer:
                for _ in range(3):
                    head = reader.head()
                    assert head is not None
                    assert writer.append(SeqNo(head + 1), b"x") == Committed()
                    assert reader.head() == head + 1
                    assert reader.scan(SeqNo(head + 1), 9) == (LogEntry(SeqNo(head + 1), b"x"),)
            assert reader.head() == 3 * (session + 1)


def test_a_quiet_reader_beside_short_writers(tmp_path: Path) -> None:
    """Each read is whole while writers open, commit, fold the WAL in and close under it."""
    path = tmp_path / "log.sqlite"
    fill(path, 1)
    with ThreadPoolExecutor(1) as pool:

        def write() -> None:
            for number in range(1, 40):
                with closing(SqliteConsensus(path)) as writer:
                    assert writer.append(SeqNo(number), b"x" * 3_000) == Committed()

        writing = pool.submit(write)
        last = 0
        while not writing.done():
            # A fresh one each time, so that most reads find no -wal file at first.
            with closing(SqliteConsensus(path, read_only=True)) as reader:
                head = reader.head()
                assert head is not None
                assert head >= last
                last = head
                assert [e.seqno for e in reader.scan(SeqNo(0), last + 1)] == list(range(last + 1))
        writing.result()


@pytest.mark.parametrize("writer_stays", [False, True])
def test_a_read_under_which_the_log_changed_is_repeated(tmp_path: Path, writer_stays: bool) -> None:
    path = tmp_path / "log.sqlite"
    fill(path, 1)
    reads: list[int] = []
    writers: list[SqliteConsensus] = []

    def read(connection: sqlite3.Connection) -> int:
        (head,) = connection.execute("SELECT max(seqno) FROM log").fetchone()
        reads.append(head)
        if len(reads) == 1:
            writers.append(SqliteConsensus(path))
            assert writers[0].append(SeqNo(1), b"") == Committed()
            if not writer_stays:
                writers[0].close()
        return int(head)

    with closing(SqliteConsensus(path, read_only=True)) as reader:
        assert reader._read(read) == 1
    assert reads == [0, 1]
    writers[0].close()


def test_read_only_refuses_effects_and_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(Determinate, match="no such log"):
        SqliteConsensus(tmp_path / "log.sqlite", read_only=True)
    assert listing(tmp_path) == {}
    fill(tmp_path / "log.sqlite", 1)
    with closing(SqliteConsensus(tmp_path / "log.sqlite", read_only=True)) as reader:
        with pytest.raises(InvalidUsage, match="opened read-only"):
            reader.append(SeqNo(1), b"")
        with pytest.raises(InvalidUsage, match="opened read-only"):
            reader.truncate(SeqNo(0))


def test_no_permission(locked_away: Path, unprivileged: Unprivileged) -> None:
    path = locked_away / "log.sqlite"
    fill(path, 3)
    locked_away.chmod(0o555)
    path.chmod(0o444)
    with unprivileged():
        with closing(SqliteConsensus(path, read_only=True)) as reader:
            assert reader.head() == 2
        with pytest.raises(Determinate, match="write"):
            SqliteConsensus(path).append(SeqNo(3), b"")
        with pytest.raises(Determinate, match="this user may write the directory"):
            SqliteConsensus(locked_away / "new.sqlite")
    assert [p.name for p in locked_away.iterdir()] == ["log.sqlite"]

    # Beside a writer: its -wal and -shm files are there, and readable.
    locked_away.chmod(0o755)
    path.chmod(0o644)
    with closing(SqliteConsensus(path)) as writer:
        writer.append(SeqNo(3), b"")
        locked_away.chmod(0o555)
        with unprivileged(), closing(SqliteConsensus(path, read_only=True)) as reader:
            assert reader.head() == 3
            writer.append(SeqNo(4), b"")
            assert reader.head() == 4


READ_ONLY_DISK = """
import os, sys
from pathlib import Path
from headwater.base.errors import Determinate
from headwater.persist.consensus import SqliteConsensus

closed, crashed = Path(sys.argv[1]) / "closed.sqlite", Path(sys.argv[1]) / "crashed.sqlite"
if sys.argv[2] == "prepare":
    log = SqliteConsensus(closed)
    log.append(0, b"")
    log.close()
    log = SqliteConsensus(crashed)
    log.append(0, b"")
    log.append(1, b"")
    os._exit(0)
print(SqliteConsensus(closed, read_only=True).head())
print(SqliteConsensus(crashed, read_only=True).head())
try:
    SqliteConsensus(closed).append(1, b"")
except Determinate as error:
    print(error)
"""


def test_read_only_disk(run_in_mount: Callable[[str, str], str]) -> None:
    closed, crashed, refusal = run_in_mount(READ_ONLY_DISK, "remount,ro").splitlines()
    assert closed == "0"
    assert crashed == "1"
    assert "closed.sqlite" in refusal


FULL_DISK = """
import sys
from pathlib import Path
from headwater.base.errors import Determinate
from headwater.persist.consensus import SqliteConsensus
from headwater.persist.location import Committed

if sys.argv[2] == "prepare":
    sys.exit()
log = SqliteConsensus(Path(sys.argv[1]) / "log.sqlite")
number = 0
try:
    while True:
        assert log.append(number, b"x" * 1_000) == Committed()
        number += 1
except Determinate as error:
    print(error)
assert log.head() == number - 1
assert len(log.scan(0, 10_000)) == number
try:
    log.append(number, b"x" * 100_000)
except Determinate as error:
    print(error)
assert log.head() == number - 1, "the location stays readable"
log.close()
log = SqliteConsensus(Path(sys.argv[1]) / "log.sqlite")
assert log.head() == number - 1
"""


def test_full_disk(run_in_mount: Callable[[str, str], str]) -> None:
    said = run_in_mount(FULL_DISK, "remount,rw").splitlines()
    assert len(said) == 2
    assert all("log.sqlite: " in line for line in said)
    assert "the disk is full; free space" in said[0]


def test_a_lock_held_by_another_is_determinate(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    with closing(SqliteConsensus(path, busy_timeout_s=0.05)) as log:
        log.append(SeqNo(0), b"")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Determinate, match="another process holds the log"):
                log.append(SeqNo(1), b"")
            with pytest.raises(Determinate):
                log.truncate(SeqNo(0))
            assert log.head() == 0, "readers do not wait for writers"
            other.execute("ROLLBACK")
        assert log.append(SeqNo(1), b"") == Committed()


def test_errors_are_sorted_by_code_and_by_whether_commit_was_issued(tmp_path: Path) -> None:
    log = SqliteConsensus(tmp_path / "log.sqlite")
    failure = sqlite3.OperationalError("disk I/O error")
    failure.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    assert isinstance(log._external(failure, nothing_happened=False), Indeterminate)
    assert isinstance(log._external(failure, nothing_happened=True), Determinate)
    failure.sqlite_errorcode = sqlite3.SQLITE_BUSY_SNAPSHOT
    assert isinstance(log._external(failure, nothing_happened=False), Determinate)
    log.close()


def test_an_interrupted_transaction_leaves_nothing(tmp_path: Path) -> None:
    with closing(SqliteConsensus(tmp_path / "log.sqlite")) as log:
        log.append(SeqNo(0), b"")
        with pytest.raises(InvalidUsage):
            log.truncate(SeqNo(7))
        assert log.append(SeqNo(1), b"") == Committed(), "the write lock was given back"
        with closing(SqliteConsensus(tmp_path / "log.sqlite", busy_timeout_s=0)) as other:
            assert other.append(SeqNo(1), b"") == LostRace(SeqNo(1))


def test_files_of_strangers_are_refused(tmp_path: Path) -> None:
    text, empty, database, newer = (tmp_path / n for n in ("text", "empty", "database", "newer"))
    text.write_text("not a database at all, but long enough to be looked at" * 100)
    empty.touch()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE log (seqno INTEGER PRIMARY KEY, data BLOB)")
    fill(newer, 1)
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("PRAGMA user_version=2")
    contents = {path: path.read_bytes() for path in (text, empty, database)}
    for read_only in (False, True):
        with pytest.raises(Determinate, match="not a SQLite database"):
            SqliteConsensus(text, read_only)
        with pytest.raises(Determinate, match="not a Headwater log"):
            SqliteConsensus(empty, read_only)
        with pytest.raises(Determinate, match="not a Headwater log"):
            SqliteConsensus(database, read_only)
        with pytest.raises(NewerFormat, match=r"newer has format version 2.*reads up to 1"):
            SqliteConsensus(newer, read_only)
    assert contents == {path: path.read_bytes() for path in (text, empty, database)}


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = SqliteConsensus(tmp_path / "log.sqlite")
    log.close()
    log.close()
    with pytest.raises(InvalidUsage, match="was closed"):
        log.head()


def test_addresses(tmp_path: Path) -> None:
    with closing(open_consensus(f"sqlite://{tmp_path}/a%20log.sqlite")) as log:
        log.append(SeqNo(0), b"")
    with closing(SqliteConsensus(tmp_path / "a log.sqlite", read_only=True)) as log:
        assert log.head() == 0
    with closing(open_consensus("memory:")) as log:
        assert log.head() is None
    for wrong in ("sqlite://relative", "mysql://user:secret@host/x", "/just/a/path", "memory:?"):
        with pytest.raises(InvalidUsage) as refusal:
            open_consensus(wrong)
        assert "secret" not in str(refusal.value)
    with pytest.raises(InvalidUsage):
        open_consensus("memory:", read_only=True)
