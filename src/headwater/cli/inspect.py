"""``headwater inspect``: what a location holds, as tables or as JSON.

Read-only and independent: it may look at a location that a server is writing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from headwater.base.errors import HeadwaterError
from headwater.cli.exit_status import CannotOpen
from headwater.cli.location import (
    IMPATIENT,
    BlobAddress,
    ConsensusAddress,
    Json,
    Location,
    ports,
)
from headwater.persist import inspect as persist_inspect
from headwater.persist.client import open_location
from headwater.persist.core import Settings
from headwater.persist.inspect import (
    ID_SHOWN,
    Bounds,
    CollectionReport,
    GroupReport,
    HoldReport,
    ObjectReport,
    Report,
)

PIPE_WIDTH: Final = 160
"""Columns of a table that nobody sees on a terminal."""


def inspect(
    location: Location = None,
    blob: BlobAddress = "",
    consensus: ConsensusAddress = "",
    as_json: Json = False,
) -> None:
    """Show what a location holds: collections, batches, readers, roles, sizes, leaked objects."""
    with ports(location, blob, consensus) as (objects, log):
        settings = Settings(retry=IMPATIENT)
        try:
            client = open_location(blob=objects, consensus=log, read_only=True, settings=settings)
        except HeadwaterError as error:
            raise CannotOpen(f"{error} (headwater fsck names everything that is wrong)") from error
        with client:
            report = persist_inspect.inspect(client.core)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = PIPE_WIDTH
        show(report, console)


def show(report: Report, console: Console) -> None:
    """Print a report as tables."""
    console.print(f"entry {report.seqno}, log clock {report.clock_ms} ms")
    if report.retry is not None:
        retry = report.retry
        console.print(
            f"storage is failing: attempt {retry.attempts}, {retry.cause}; next try at "
            f"{retry.next_try_ms} ms"
        )
    _table(
        console,
        "Roles",
        ("role", "epoch", "held", "holder"),
        ((r.name, r.epoch, "yes" if r.held else "no", r.holder) for r in report.roles),
    )
    _table(
        console,
        "Timelines",
        ("timeline", "upper", "apart"),
        ((t.name, t.upper, t.apart) for t in report.timelines),
    )
    _table(
        console,
        "Collections",
        ("id", "name", "layout", "key", "since", "upper", "batches", "rows", "bytes", "in log"),
        (
            (
                c.id,
                c.name,
                c.layout,
                ", ".join(c.key),
                _frontier(c.since),
                _frontier(c.upper),
                len(c.batches),
                f"{c.rows:,}",
                _bytes(c.bytes),
                _bytes(c.inline_bytes),
            )
            for c in report.collections
        ),
    )
    for collection in report.collections:
        _show_collection(collection, console)
    sizes = report.sizes
    named: tuple[tuple[str, GroupReport], ...] = (
        ("log entries", sizes.log),
        ("objects in use", sizes.referenced),
        ("rollups", sizes.rollups),
        ("garbage, to be deleted", sizes.garbage),
        ("leaked", sizes.leaked),
        ("unfinished", sizes.unfinished),
        ("foreign", sizes.foreign),
        ("temporary files", sizes.temporary),
    )
    _table(
        console,
        "Sizes",
        ("what", "count", "bytes"),
        ((name, group.objects, _bytes(group.bytes)) for name, group in named),
    )
    _table(
        console,
        "Rollups",
        ("entry", "object", "bytes"),
        (
            (r.seqno, r.key, "MISSING" if r.bytes is None else _bytes(r.bytes))
            for r in report.rollups
        ),
    )
    listed: tuple[tuple[str, Sequence[ObjectReport]], ...] = (
        ("Leaked: written and never committed", report.leaked),
        ("Unfinished: not committed, perhaps not yet", report.unfinished),
        ("Foreign: not our names", report.foreign),
        ("Temporary files", report.temporary),
    )
    for title, objects in listed:
        _table(console, title, ("object", "bytes"), ((o.key, _bytes(o.bytes)) for o in objects))
    _table(
        console,
        "MISSING: the log refers to them and they are not there",
        ("object",),
        ((key,) for key in report.missing),
    )


def _show_collection(collection: CollectionReport, console: Console) -> None:
    console.print(f"\n[bold]{collection.name}[/bold] ({collection.id})")
    console.print(f"  schema  {', '.join(collection.schema)}")
    version = f", schema version {collection.schema_versions}"
    console.print(f"  codec   {collection.codec}{version}")
    if collection.unsealed_writes:
        rows = f"{collection.unsealed_rows:,}"
        console.print(f"  unsealed  {collection.unsealed_writes} writes, {rows} rows")
    _table(
        console,
        "",
        ("batch", "lower", "upper", "since", "parts", "rows", "bytes"),
        (
            (
                b.no,
                _frontier(b.lower),
                _frontier(b.upper),
                _frontier(b.since),
                b.parts,
                f"{b.rows:,}",
                _bytes(b.bytes),
            )
            for b in collection.batches
        ),
    )
    for title, holds in (("reader", collection.readers), ("writer", collection.writers)):
        _show_holds(title, holds, console)


def _show_holds(title: str, holds: Sequence[HoldReport], console: Console) -> None:
    _table(
        console,
        "",
        (title, "purpose", "frontier", "lease"),
        (
            (
                f"{hold.id}…" if len(hold.id) == ID_SHOWN else hold.id,
                hold.purpose,
                _frontier(hold.frontier),
                "expired" if hold.expired else f"{hold.lease_ms} ms" if hold.lease_ms else "none",
            )
            for hold in holds
        ),
    )


def _table(
    console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Print a table; nothing at all where it has no rows."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        numeric = column in {"count", "bytes", "rows", "in log", "epoch", "parts"}
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    if table.row_count:
        console.print()
        console.print(table)


def _frontier(bounds: Bounds) -> str:
    return "closed" if not bounds else ", ".join(str(time) for time in bounds)


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
