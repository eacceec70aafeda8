"""``headwater fsck``: check every checksum and every invariant of a location.

Read-only: it may check a location that a server is writing. The exit status tells: 0 clean
(warnings cost only room), 1 errors, 2 the location cannot be opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from headwater.base.errors import ExternalError
from headwater.cli.exit_status import CannotOpen, ExitStatus
from headwater.cli.location import BlobAddress, ConsensusAddress, Json, Location, ports
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.finding import Finding
from headwater.persist.fsck import Progress, check
from headwater.persist.layout import Layouts

LONG_BYTES: Final = 64 * 1024 * 1024
LONG_PARTS: Final = 500
"""From here on a check takes long enough for a person to want to see it move."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome, as JSON has it."""

    errors: int
    warnings: int
    findings: tuple[Finding, ...]


def fsck(
    location: Location = None,
    blob: BlobAddress = "",
    consensus: ConsensusAddress = "",
    as_json: Json = False,
) -> None:
    """Check every checksum and every invariant; name what is wrong, and change nothing."""
    found: list[Finding] = []
    with ports(location, blob, consensus) as (objects, log), _bar() as on_progress:
        try:
            for each in check(objects, log, Layouts(*LAYOUTS), on_progress):
                found.append(each)
                if not as_json:
                    typer.echo(str(each))
        except ExternalError as error:
            raise CannotOpen(str(error)) from error
    errors = sum(each.severity == "error" for each in found)
    verdict = Verdict(errors, len(found) - errors, tuple(found))
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(verdict)))
    else:
        typer.echo(f"{verdict.errors} errors, {verdict.warnings} warnings")
    raise typer.Exit(ExitStatus.FINDINGS if errors else ExitStatus.OK)


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    """Show a bar on a terminal's standard error, once the check turns out to be long."""
    console = Console(stderr=True)
    columns = (TextColumn("checking"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("", total=None)

    def show(progress: Progress) -> None:
        long = progress.bytes_total >= LONG_BYTES or progress.parts_total >= LONG_PARTS
        if long and not bar.live.is_started:
            bar.start()
        bar.update(task, completed=progress.bytes_done, total=progress.bytes_total)

    try:
        yield show
    finally:
        bar.stop()
