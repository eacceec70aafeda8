"""``headwater demo``: a tour of what exists, on real files, through the public door.

It starts the server on a directory, and then does only what any client could do: psycopg in, SQLite
out. Started again on the same directory it goes on where it was.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from headwater.base.clock import SystemClock

REGIONS: Final = ("north", "east", "south", "west")
CUSTOMERS: Final = 40
ROWS_PER_INSERT: Final = 25

QUERY: Final = """
SELECT c.region, sum(o.amount) AS total, count(*) AS orders
FROM customers c JOIN orders o ON c.id = o.customer GROUP BY c.region"""


def demo(
    data: Annotated[
        Path | None, typer.Option(help="Directory to use (and to go on from); default: a new one.")
    ] = None,
    duration: Annotated[float, typer.Option(help="Seconds of live inserts.")] = 15.0,
    port: Annotated[int, typer.Option(help="Port for SQL clients; 0 takes a free one.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the generated orders.")] = 1,
) -> None:
    """Tables, a maintained view, time travel, and a delivery into SQLite: in half a minute."""
    from headwater.server.compose import Server, ServerConfig

    console = Console()
    directory = data or Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    console.print(f"[bold]Headwater demo[/bold] on {directory}")
    with console.status("starting Spark and the server …"):
        server = Server(ServerConfig(directory, port=port)).start()
    try:
        line = f"psql -h {server.wire.host} -p {server.wire.port} -U headwater"
        console.print(f"SQL clients are welcome: [cyan]{line}[/cyan]")
        _tour(console, server.wire.port, directory, duration, Random(seed))
    finally:
        with console.status("stopping …"):
            server.stop()
    console.print(f"Everything is kept in {directory}; inspect it:")
    console.print(f"  [cyan]headwater inspect {directory}[/cyan]")


def _tour(console: Console, port: int, directory: Path, duration: float, chance: Random) -> None:
    import psycopg

    endpoint = directory / "delivered.db"
    connection = psycopg.connect(
        f"host=127.0.0.1 port={port} user=headwater dbname=headwater", autocommit=True
    )
    with connection as db:

        def run(sql: str) -> list[tuple[Any, ...]]:
            cursor = db.execute(sql.encode())
            return cursor.fetchall() if cursor.description is not None else []

        known = {name for name, _ in run("SHOW TABLES")}
        if "orders" in known:
            console.print("Tables, view and delivery are known: they go on where they were.")
        else:
            _define(console, run, endpoint, chance)
        as_of, then = _insert_live(console, run, duration, chance)
        _check(console, run, endpoint, as_of, then)


def _define(console: Console, run: Callable[[str], Any], endpoint: Path, chance: Random) -> None:
    statements = [
        "CREATE TABLE customers (id BIGINT, region TEXT)",
        "CREATE TABLE orders (customer BIGINT, amount INT)",
        f"CREATE MATERIALIZED VIEW totals AS {QUERY}",
        f"""CREATE MATERIALIZATION delivery INTO SQLITE (PATH '{endpoint}')
            (totals AS totals KEY (region))""",
    ]
    for statement in statements:
        run(statement)
        console.print(f"[green]ok[/green] {statement.strip()}")
    rows = ", ".join(f"({n}, '{chance.choice(REGIONS)}')" for n in range(CUSTOMERS))
    run(f"INSERT INTO customers VALUES {rows}")  # noqa: S608 - our own literals


def _insert_live(
    console: Console, run: Callable[[str], Any], duration: float, chance: Random
) -> tuple[int, list[tuple[Any, ...]]]:
    """Insert for a while, showing the view after every insert; remember one time on the way."""
    inserted, freshness = 0, list[float]()
    remembered: tuple[int, list[tuple[Any, ...]]] = (0, [])
    end = time.monotonic() + duration
    with Live(console=console, refresh_per_second=8) as live:
        while time.monotonic() < end:
            rows = ", ".join(
                f"({chance.randrange(CUSTOMERS)}, {chance.randint(1, 100)})"
                for _ in range(ROWS_PER_INSERT)
            )
            started = time.monotonic()
            run(f"INSERT INTO orders VALUES {rows}")  # noqa: S608
            totals = sorted(run("SELECT region, total, orders FROM totals"))
            freshness.append(time.monotonic() - started)
            inserted += ROWS_PER_INSERT
            live.update(_picture(totals, inserted, freshness))
            if not remembered[1]:
                remembered = (SystemClock().now_ms(), totals)
                time.sleep(0.01)  # The next insert is at a later millisecond.
    freshness.sort()
    console.print(
        f"{inserted} orders inserted; an acknowledged insert was in the view that was read next, "
        f"each time: insert + read took {freshness[len(freshness) // 2] * 1000:.0f} ms (median)."
    )
    return remembered


def _picture(totals: list[tuple[Any, ...]], inserted: int, freshness: list[float]) -> Table:
    table = Table(title="totals, kept incrementally")
    for column in ("region", "total", "orders"):
        table.add_column(column, justify="right")
    for row in totals:
        table.add_row(*(str(value) for value in row))
    table.caption = f"{inserted} orders, last insert + read {freshness[-1] * 1000:.0f} ms"
    return table


def _check(
    console: Console,
    run: Callable[[str], list[tuple[Any, ...]]],
    endpoint: Path,
    as_of: int,
    then: list[tuple[Any, ...]],
) -> None:
    maintained = sorted(run("SELECT region, total, orders FROM totals"))
    recomputed = sorted(run(QUERY))
    past = sorted(run(f"SELECT region, total, orders FROM totals AS OF {as_of}"))  # noqa: S608
    _say(console, maintained == recomputed, "the maintained view equals the query run from scratch")
    _say(console, past == then, f"AS OF {as_of} gives what was seen at that moment")
    delivered: list[tuple[Any, ...]] = []
    for _ in range(100):
        with closing(sqlite3.connect(endpoint)) as file:
            delivered = sorted(file.execute("SELECT region, total, orders FROM totals"))
        if delivered == maintained:
            break
        time.sleep(0.1)
    _say(console, delivered == maintained, f"the same rows are in {endpoint.name}, exactly once")
    if not (maintained == recomputed == delivered and past == then):
        raise typer.Exit(1)


def _say(console: Console, good: bool, what: str) -> None:
    console.print(("[green]✓[/green] " if good else "[red]✗[/red] ") + what)
