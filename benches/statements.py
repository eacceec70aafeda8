"""What a statement costs over the wire, against a real ``headwater serve``, beside raw peers.

Targets: an INSERT of one row is acknowledged within 15 ms (p50, one client), 32 clients insert
1,000 rows a second by group commit, COPY takes 150,000 rows a second, a read by primary key or by
an index is answered within 10 ms (p50) without a Spark job, an ad-hoc SELECT over a million rows
takes at most 1.2 times what plain Spark takes on the same Parquet, SUBSCRIBE delivers within 50 ms
after the commit, and 100 idle sessions cost no CPU that one could measure.

Peers, in the same run and on the same disk: ``fsync`` of 4 KiB, a durable row of plain SQLite, a
PostgreSQL of its own with the same clients doing the same, and (for ad-hoc queries, in a process of
its own, one after the other in turns) Spark on Parquet files of the same rows.

Clients are threads of this process; their CPU is counted with the server's. PostgreSQL's is not: it
is no child of ours, so beside it only the clients' stands.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from measure import (
    SCHEMA,
    TICKS_PER_S,
    begin,
    cost,
    percentile,
    quick,
    raw_fsync_s,
    raw_sqlite_s,
    scratch,
    show,
    updates,
    write_parquet,
)

from headwater.testing.process_tree import descendants
from headwater.testing.servers import postgres_server

Connection = psycopg.Connection[Any]
Connect = Callable[[], Connection]

ADHOC = (
    "SELECT count(*) AS n, sum(amount) AS s, min(k) AS a, max(k) AS z FROM t",
    "SELECT k % 100 AS g, count(*) AS n, sum(amount) AS s FROM t GROUP BY k % 100",
    "SELECT name, count(*) AS n FROM t GROUP BY name ORDER BY n DESC, name LIMIT 10",
    "SELECT count(*) AS n FROM t WHERE amount > 500000000 AND k % 7 = 3",
)


# ---- servers -------------------------------------------------------------------------------------


class Served:
    """A ``headwater serve`` of its own."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "headwater", "serve", "--data", str(folder)]
        self.process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", "--console", "off", "--log-level", "warning"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("listening on"):
                self.port = int(line.rsplit(":", 1)[1])
                break
        else:
            raise RuntimeError("the server did not start")

    def connect(self) -> Connection:
        return psycopg.connect(host="127.0.0.1", port=self.port, user="headwater", autocommit=True)

    def cpu_s(self) -> float:
        """Return user and system time of the server and all its processes that live."""
        total, pids = 0.0, {str(self.process.pid)}
        found = descendants()
        while more := {p for p, f in found.items() if f[1] in pids} - pids:
            pids |= more
        for pid in pids & set(found):
            total += (int(found[pid][11]) + int(found[pid][12])) / TICKS_PER_S
        return total

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    server = Served(folder)
    try:
        yield server
    finally:
        server.stop()


# ---- inserts -------------------------------------------------------------------------------------


def insert(connect: Connect, table: str, clients: int, seconds: float) -> list[object]:
    """Insert rows one by one from ``clients`` sessions at the same time."""
    spent: list[float] = []
    with ExitStack() as stack:
        sessions = [stack.enter_context(connect()) for _ in range(clients)]
        query = f"INSERT INTO {table} VALUES (%s, %s, %s)"
        # The first of all waits until what answers for types is up; each prepares its own.
        for number, session in enumerate(sessions):
            session.execute(query, (-1 - number, 0, "first"), prepare=True)
        end = time.perf_counter() + seconds

        def client(number: int) -> None:
            cursor, n = sessions[number].cursor(), 0
            while (start := time.perf_counter()) < end:
                key = number * 10**9 + n
                cursor.execute(query, (key, n, f"name-{n}"), prepare=True)
                spent.append(time.perf_counter() - start)
                n += 1

        threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
        with cost() as found:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        answer = sessions[0].execute(f"SELECT count(*) FROM {table}").fetchone()
    assert answer == (len(spent) + clients,), answer
    return [
        f"{len(spent) / found.wall_s:,.0f}",
        f"{percentile(spent, 0.5) * 1e3:.1f}",
        f"{percentile(spent, 0.99) * 1e3:.1f}",
        f"{found.cpu_s / len(spent) * 1e3:.2f}",
    ]


def inserts(ours: Connect, theirs: Connect, seconds: float) -> list[list[object]]:
    rows: list[list[object]] = []
    for clients, key in ((1, "PRIMARY KEY"), (32, "PRIMARY KEY"), (32, "")):
        table = f"t{clients}{'k' if key else ''}"
        for name, connect in (("ours", ours), ("PostgreSQL", theirs)):
            with connect() as connection:
                connection.execute(f"CREATE TABLE {table} (k bigint {key}, amount int, name text)")
            told = f"{clients} client{'s' if clients > 1 else ''}{', primary key' if key else ''}"
            rows.append([f"{told}: {name}", *insert(connect, table, clients, seconds)])
    return rows


# ---- COPY, point reads, ad-hoc queries ---------------------------------------------------


def copy(connect: Connect, text: bytes, count: int) -> list[object]:
    with connect() as connection:
        table = "CREATE TABLE t (k bigint PRIMARY KEY, amount bigint, name text)"
        connection.execute(table)
        with cost() as found, connection.cursor().copy("COPY t FROM STDIN") as copying:
            for start in range(0, len(text), 1 << 18):
                copying.write(text[start : start + (1 << 18)])
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (count,)
    return [f"{count / found.wall_s:,.0f}", f"{found.cpu_s:.2f}"]


def read_points(connect: Connect, query: str, keys: Sequence[object]) -> list[object]:
    spent = []
    with connect() as connection:
        cursor = connection.cursor()
        for key in keys:
            start = time.perf_counter()
            rows = cursor.execute(query, (key,), prepare=True).fetchall()
            spent.append(time.perf_counter() - start)
            assert rows
    return [f"{percentile(spent, share) * 1e3:.2f}" for share in (0.5, 0.99)]


def points(ours: Connect, theirs: Connect, count: int) -> list[list[object]]:
    numbers = list(range(0, count, max(1, count // 500)))
    by_key, by_name = "SELECT amount FROM t WHERE k = %s", "SELECT k FROM t WHERE name = %s"
    names = [f"name-{n % 1_000_000}" for n in numbers]
    for connect in (ours, theirs):
        with connect() as connection:
            connection.execute("CREATE INDEX by_name ON t (name)")
    with ours() as connection:
        # PostgreSQL's is whole when it is made. Ours is filled beside queries, which do without it.
        filled = "SELECT status = 'running' FROM hw_status WHERE name = 'by_name'"
        while connection.execute(filled).fetchone() != (True,):
            time.sleep(0.1)
    return [
        ["primary key: ours", *read_points(ours, by_key, numbers)],
        ["primary key: PostgreSQL", *read_points(theirs, by_key, numbers)],
        ["index: ours", *read_points(ours, by_name, names)],
        ["index: PostgreSQL", *read_points(theirs, by_name, names)],
    ]


def adhoc(ours: Connect, parquet: Path, turns: int) -> list[list[object]]:
    """Run each query here and there in turns; the medians and their ratio."""
    program = [sys.executable, __file__, "--spark-on", str(parquet)]
    peer = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert peer.stdin is not None
    assert peer.stdout is not None

    def there(query: str) -> tuple[float, str]:
        peer.stdin.write(query + "\n")  # type: ignore[union-attr]
        peer.stdin.flush()  # type: ignore[union-attr]
        seconds, _, answer = peer.stdout.readline().partition(" ")  # type: ignore[union-attr]
        return float(seconds), answer.strip()

    rows: list[list[object]] = []
    with ours() as connection:
        for number, query in enumerate(ADHOC, start=1):
            here_s, there_s = [], []
            for turn in range(turns + 1):
                start = time.perf_counter()
                found = connection.execute(query).fetchall()
                here = time.perf_counter() - start
                theirs_s, answer = there(query)
                assert sorted(map(repr, _plain(found))) == eval(answer)
                if turn:  # The first of each is for warming up.
                    here_s.append(here)
                    there_s.append(theirs_s)
            mine, plain = percentile(here_s, 0.5), percentile(there_s, 0.5)
            cells = (f"{mine * 1e3:.0f}", f"{plain * 1e3:.0f}", f"{mine / plain:.2f}")
            rows.append([f"{number}: {query[:60]}", *cells])
    peer.stdin.close()
    peer.wait(60)
    peer.stdout.close()
    return rows


def _plain(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return rows with whole decimals as integers: sum(bigint) is a numeric in PostgreSQL."""
    return [tuple(v if isinstance(v, str) else int(v) for v in row) for row in rows]


def spark_on(parquet: Path) -> None:
    """Answer queries of standard input over one file: seconds and rows, a line each."""
    from headwater.compute.session import close_session, open_session

    session = open_session()
    session.read.parquet(str(parquet)).createOrReplaceTempView("t")
    for line in sys.stdin:
        start = time.perf_counter()
        rows = session.sql(line).toArrow()
        spent = time.perf_counter() - start
        columns = [column.to_pylist() for column in rows.columns]
        print(spent, sorted(map(repr, zip(*columns, strict=True))), flush=True)
    close_session()


# ---- subscriptions and idle sessions ---------------------------------------------------


def delivery(connect: Connect, count: int) -> list[object]:
    """Insert rows one by one; how long after its acknowledgement each was delivered."""
    arrived: dict[int, float] = {}
    begun = threading.Event()
    with connect() as connection:
        connection.execute("CREATE TABLE d (k bigint, v bigint)")

    def follow() -> None:
        query = "COPY (SUBSCRIBE d WITH (PROGRESS)) TO STDOUT"
        with connect() as connection, connection.cursor().copy(query) as rows:
            for row in rows.rows():
                begun.set()
                if row[1] == "f":
                    arrived[int(row[3])] = time.perf_counter()
                if len(arrived) == count:
                    connection.close()
                    return

    consumer = threading.Thread(target=follow, daemon=True)
    consumer.start()
    begun.wait(60)
    sent, told = {}, {}
    with connect() as connection:
        for k in range(count):
            sent[k] = time.perf_counter()
            connection.execute("INSERT INTO d VALUES (%s, %s)", (k, k), prepare=True)
            told[k] = time.perf_counter()
            time.sleep(0.01)
    consumer.join(60)
    assert len(arrived) == count
    after = [max(0.0, arrived[k] - told[k]) for k in range(count)]
    whole = [arrived[k] - sent[k] for k in range(count)]
    return [
        f"{count} rows",
        *(f"{percentile(after, share) * 1e3:.1f}" for share in (0.5, 0.99)),
        *(f"{percentile(whole, share) * 1e3:.1f}" for share in (0.5, 0.99)),
    ]


def idle(server: Served, seconds: float) -> list[list[object]]:
    """CPU of the server with no session, and with a hundred that say nothing; in turns."""
    rows: list[list[object]] = []
    for sessions in (0, 100, 100, 0):
        with ExitStack() as stack:
            for _ in range(sessions):
                stack.enter_context(server.connect()).execute("SELECT 1")
            time.sleep(2)
            before = server.cpu_s()
            time.sleep(seconds)
            rows.append(
                [f"{sessions} sessions", f"{(server.cpu_s() - before) / seconds * 1e3:.1f}"]
            )
    return rows


# ---- all of it -----------------------------------------------------------------------------------


def main() -> None:
    seconds, loads = (3.0, (20_000, 200_000)) if quick() else (15.0, (100_000, 1_000_000))
    begin("Statements, over the wire")
    with scratch() as folder, postgres_server() as dsn, served(folder / "data") as server:

        def theirs() -> Connection:
            return psycopg.connect(dsn, autocommit=True)

        with theirs() as connection:
            kept = connection.execute("SHOW fsync").fetchone()
        sync = percentile(raw_fsync_s(folder), 0.5) * 1e3
        row = percentile(raw_sqlite_s(folder), 0.5) * 1e3
        show(
            f"INSERT of one row (fsync of 4 KiB: {sync:.2f} ms; a durable row of plain SQLite: "
            f"{row:.2f} ms; PostgreSQL with fsync {kept[0] if kept else '?'})",
            ["", "rows/s", "p50 ms", "p99 ms", "CPU ms"],
            inserts(server.connect, theirs, seconds),
        )
        copied: list[list[object]] = []
        for count in loads:
            rows = updates(0, count, 0).select(SCHEMA.names)
            text = b"".join(
                b"%d\t%d\t%s\n" % (k, amount, name.encode())
                for k, amount, name in zip(*(c.to_pylist() for c in rows.columns), strict=True)
            )
            for name, connect in (("ours", server.connect), ("PostgreSQL", theirs)):
                with connect() as connection:
                    connection.execute("DROP TABLE IF EXISTS t")
                copied.append([f"{count:,} rows: {name}", *copy(connect, text, count)])
        show("COPY into a table with a primary key", ["", "rows/s", "CPU s"], copied)
        write_parquet(rows, folder / "t.parquet")
        show(
            f"Ad-hoc SELECT over {loads[-1]:,} rows (median of turns)",
            ["", "ours ms", "Spark on Parquet ms", "ratio"],
            adhoc(server.connect, folder / "t.parquet", 3 if quick() else 7),
        )
        show(
            f"Point SELECT among {loads[-1]:,} rows",
            ["", "p50 ms", "p99 ms"],
            points(server.connect, theirs, loads[-1]),
        )
        show(
            "SUBSCRIBE: from the acknowledgement (and from the start) of an INSERT to its delivery",
            ["", "p50 ms", "p99 ms", "whole p50", "whole p99"],
            [delivery(server.connect, 100 if quick() else 500)],
        )
        show(
            "CPU of the server while nobody says anything (ms per second)",
            ["", "CPU ms/s"],
            idle(server, 4.0 if quick() else 20.0),
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--spark-on"]:
        spark_on(Path(sys.argv[2]))
    else:
        main()
