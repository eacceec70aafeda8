"""NEXMark q0, q3, q4, q9 with updates and deletes: ours beside Pathway and PyFlink.

One stream of changes for all: rows that come and go, time after time. Ours takes it in as steps of
one view, every one durable, from durable inputs; the others read files and keep everything in
memory, so theirs includes parsing and ours includes writing: q0, which only passes bids through, is
there to subtract it. Each engine in a process tree of its own; the figure is changes that reach the
query per CPU-second. Spark Structured Streaming is run on the append-only part of q0 and q3: it has
neither updates nor deletes.

``make bench-peers`` makes an environment for each peer in ``build/peers``; one that is not there is
left out, and said so.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from measure import arguments, begin, cost, scratch, show
from world import World

from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.testing.nexmark import Auctions
from headwater.testing.relation import Change

HERE = Path(__file__).parent
QUERIES = HERE.parent / "tests" / "queries" / "nexmark"
USED = {"q00": ("bid",), "q03": ("auction", "person")}
BOTH = ("auction", "bid")
FOR_FLINK = {
    "person": ("id", "name", "city", "state"),
    "auction": ("id", "seller", "category", "dateTime", "expires"),
    "bid": ("auction", "bidder", "price", "dateTime", "extra"),
}


def _plain(rows: pa.Table) -> pa.Table:
    """Return rows with times as whole milliseconds, which every engine reads."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            whole = pc.divide(rows.column(number).cast(pa.int64()), 1_000)
            rows = rows.set_column(number, field.name, whole)
    return rows


def _write_for_pathway(folder: Path, stream: list[list[Change]]) -> None:
    folder.mkdir()
    for relation in FOR_FLINK:
        parts = [
            _plain(change.updates(2 * time + 2))
            for time, changes in enumerate(stream)
            for change in changes
            if change.relation == relation
        ]
        table = pa.concat_tables(parts)
        names = {"id": "key", "__time": "__time__", "__diff": "__diff__"}  # ``id`` is Pathway's own
        table = table.rename_columns([names.get(name, name) for name in table.column_names])
        pq.write_table(table, folder / f"{relation}.parquet")


def _envelopes(change: Change, columns: tuple[str, ...]) -> Iterator[str]:
    for rows, kind in ((change.gone, "before"), (change.come, "after")):
        for row in _plain(rows.select(columns)).to_pylist():
            named = {"dateTime_" if key == "dateTime" else key: row[key] for key in columns}
            envelope = {"before": None, "after": None, "op": "c" if kind == "after" else "d"}
            yield json.dumps({**envelope, kind: named})


def _write_for_flink(folder: Path, stream: list[list[Change]]) -> None:
    for relation, columns in FOR_FLINK.items():
        (folder / relation).mkdir(parents=True)
        with (folder / relation / "changes.json").open("w") as file:
            for changes in stream:
                for change in changes:
                    if change.relation == relation:
                        file.writelines(line + "\n" for line in _envelopes(change, columns))


def _peer(python: Path, script: str, folder: Path, name: str) -> float | None:
    """Return the CPU that a peer took, or nothing if it is not there or failed."""
    if not python.exists():
        return None
    done = subprocess.run(
        [str(python), str(HERE / script), str(folder), name],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        print(f"{script} {name}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return None
    return float(json.loads(done.stdout.strip().splitlines()[-1])["cpu_s"])


def _ours(folder: Path, session: Any, name: str, stream: list[list[Change]]) -> float:
    empty = {r: Auctions(0).tables()[r] for r in ("person", "auction", "bid", "side_input")}
    world = World(folder, session, empty)
    sql = (QUERIES / f"{name}.sql").read_text()
    world.create({name: sql})
    taken = 0.0
    for changes in stream:
        world.change(changes)
        taken += world.step().cpu_s
    world.check(name, world.controller.select(sql, world.time))
    world.close()
    return taken


def _by_spark_streaming(folder: Path, session: Any, name: str, stream: list[list[Change]]) -> float:
    """Run the append-only part through a streaming query to its end; return its CPU."""
    own = session.newSession()
    for relation in USED[name]:
        (folder / relation).mkdir(parents=True)
        for time, changes in enumerate(stream):
            for change in changes:
                if change.relation == relation:
                    pq.write_table(change.come, folder / relation / f"{time:06}.parquet")
        schema = own.read.parquet(str(folder / relation)).schema
        reader = own.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        reader.parquet(str(folder / relation)).createOrReplaceTempView(relation)
    query = own.sql((QUERIES / f"{name}.sql").read_text()).writeStream.format("noop")
    query = query.option("checkpointLocation", str(folder / "checkpoint"))
    with cost() as taken:
        query.trigger(availableNow=True).start().awaitTermination()
    return taken.cpu_s


def main() -> None:
    parser = arguments()
    parser.add_argument("--events", type=int, help="in all; 1,000,000, or 50,000 if quick")
    parser.add_argument("--batch", type=int, help="events at one time; a tenth of all")
    parser.add_argument("--churn", type=float, default=0.2)
    parser.add_argument("--peers", type=Path, default=HERE.parent / "build" / "peers")
    asked = parser.parse_args()
    events = asked.events or (50_000 if asked.quick else 1_000_000)
    batch = asked.batch or events // 10
    begin(
        f"NEXMark beside peers: {events:,} events, {asked.churn:.0%} changes, {batch:,} at a time"
    )
    session = open_session(SparkSettings(driver_memory="2g"))
    source = Auctions(1, churn=asked.churn)
    stream = [source.batch(batch) for _ in range(events // batch)]
    table = []
    with scratch() as folder:
        _write_for_pathway(folder / "pathway", stream)
        _write_for_flink(folder / "flink", stream)
        for name in ("q00", "q03", "q04", "q09"):
            used = USED.get(name, BOTH)
            of_it = [c for changes in stream for c in changes if c.relation in used]
            changes, appended = sum(c.rows for c in of_it), sum(c.come.num_rows for c in of_it)
            figures = [
                (changes, _ours(folder / name, session, name, stream)),
                *(
                    (changes, _peer(asked.peers / peer / "bin" / "python", script, files, name))
                    for peer, script, files in (
                        ("pathway", "peer_pathway.py", folder / "pathway"),
                        ("flink", "peer_flink.py", folder / "flink"),
                    )
                ),
                (
                    appended,
                    _by_spark_streaming(folder / f"streaming-{name}", session, name, stream)
                    if name in USED
                    else None,
                ),
            ]
            rates = ["-" if cpu is None else f"{n / cpu:,.0f}" for n, cpu in figures]
            table.append([name, f"{changes:,}", *rates])
            print("  ".join(table[-1]), flush=True)
    close_session()
    show(
        "changes per CPU-second; ours durable at every batch, the others in memory",
        ["query", "changes", "Headwater", "Pathway", "Flink", "Spark streaming, append-only"],
        table,
    )


if __name__ == "__main__":
    main()
