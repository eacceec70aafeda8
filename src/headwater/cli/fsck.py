"""``headwater fsck``: check every checksum and every invariant of a location.

Read-only: it may check a location that a server is writing. The exit status tells: 0 clean
(warnings cost only room), 1 errors, 2 the location cannot be opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import msgspec
import typer

from headwater.base.errors import ExternalError
from headwater.cli.exit_status import CannotOpen, ExitStatus
from headwater.cli.location import BlobAddress, ConsensusAddress, Json, Location, ports
from headwater.cli.progress import Show, bar
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.finding import Finding
from headwater.persist.fsck import Progress, check
from headwater.persist.layout import Layouts


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
    with ports(location, blob, consensus) as (objects, log), bar("checking", "parts") as show:
        try:
            for each in check(objects, log, Layouts(*LAYOUTS), partial(show_check, show)):
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


def show_check(show: Show, progress: Progress) -> None:
    """Show how far a check is."""
    show("", progress.parts_done, progress.parts_total, progress.rows_done)
