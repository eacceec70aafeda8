"""What a statement costs without the wire: inserts of many sessions, COPY, reads by primary key.

Targets (with the wire): an INSERT of one row is acknowledged within 15 ms (p50, one client), 32
clients insert 1,000 rows a second by group commit, COPY takes 150,000 rows a second, and a read by
primary key is answered within 10 ms (p50) without a Spark job.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from measure import SCHEMA, begin, cost, percentile, quick, raw_sqlite_s, scratch, show, updates

from headwater.base.clock import SystemClock
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.client import open_location
from headwater.testing.sql_server import SqlServer


def opened(folder: Path) -> SqlServer:
    clock = SystemClock()
    server = SqlServer(clock, client=open_location(folder, layouts=LAYOUTS, clock=clock))
    server.timeline.start()
    return server


def insert(folder: Path, clients: int, seconds: float, key: str) -> list[object]:
    """Insert rows one by one from ``clients`` sessions at the same time."""
    with opened(folder) as server:
        server.session()(f"CREATE TABLE t (k bigint {key}, amount bigint, name text)")
        server.session()("INSERT INTO t VALUES (-1, 0, 'first')")  # imports pandas, once
        spent: list[float] = []
        before, end = server.client.core.state.seqno, time.perf_counter() + seconds

        def client(number: int) -> None:
            sql, n = server.session(), 0
            while time.perf_counter() < end:
                start = time.perf_counter()
                sql(f"INSERT INTO t VALUES ({number * 10**9 + n}, {n}, 'name-{n}')")
                spent.append(time.perf_counter() - start)
                n += 1

        threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
        with cost() as found:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        entries = server.client.core.state.seqno - before
        assert server.session()("SELECT count(*) FROM t") == [(len(spent) + 1,)]
    return [
        f"{clients} clients{', primary key' if key else ''}",
        f"{len(spent) / found.wall_s:,.0f}",
        f"{percentile(spent, 0.5) * 1e3:.1f}",
        f"{percentile(spent, 0.99) * 1e3:.1f}",
        f"{len(spent) / entries:.1f}",
        f"{found.cpu_s / len(spent) * 1e3:.2f}",
    ]


def copy_and_read(folder: Path, count: int) -> tuple[list[object], list[object]]:
    """Load rows with a primary key, then read some of them."""
    with opened(folder) as server:
        sql = server.session()
        sql("CREATE TABLE t (k bigint PRIMARY KEY, amount bigint, name text)")
        rows = updates(0, count, 0).select(SCHEMA.names)
        with cost() as loaded:
            copy = sql.session.copy_in("t", None)
            for batch in rows.to_batches(10_000):
                copy.write(batch)
            copy.finish()
        spent = []
        for k in range(0, count, max(1, count // 300)):
            start = time.perf_counter()
            found = sql(f"SELECT amount FROM t WHERE k = {k}")
            spent.append(time.perf_counter() - start)
            assert len(found) == 1
        assert server.evaluator.evaluated == 0, "a read by key is a probe"
    return (
        [f"{count:,} rows", f"{count / loaded.wall_s:,.0f}", f"{loaded.cpu_s:.2f}"],
        [f"{count:,} rows", *(f"{percentile(spent, share) * 1e3:.2f}" for share in (0.5, 0.99))],
    )


def main() -> None:
    seconds = 3.0 if quick() else 15.0
    begin("Statements, without the wire")
    with scratch() as folder:
        raw = percentile(raw_sqlite_s(folder), 0.5) * 1e3
        inserted = [
            insert(folder / f"{clients}{key}", clients, seconds, key)
            for clients, key in ((1, "PRIMARY KEY"), (32, "PRIMARY KEY"), (32, ""))
        ]
        show(
            f"INSERT of one row (a durable row of plain SQLite: {raw:.2f} ms)",
            ["", "rows/s", "p50 ms", "p99 ms", "rows/entry", "CPU ms"],
            inserted,
        )
        sizes = (10_000, 100_000) if quick() else (100_000, 1_000_000)
        both = [copy_and_read(folder / f"copy{count}", count) for count in sizes]
        show("COPY into a table with a primary key", ["", "rows/s", "CPU s"], [c for c, _ in both])
        show("Read by primary key", ["", "p50 ms", "p99 ms"], [r for _, r in both])


if __name__ == "__main__":
    main()
