"""``headwater run`` and ``headwater check``: a project for Spark Declarative Pipelines.

``run`` brings every dataset of the project up to date, incrementally; ``check`` says what a run
would do and changes nothing. The location is the folder ``headwater`` in the ``storage`` of the
project's specification, unless ``--data`` (or ``--blob`` and ``--consensus``) says otherwise.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from headwater.cli.location import BlobAddress, ConsensusAddress, Json
from headwater.cli.progress import Show, bar

if TYPE_CHECKING:
    from headwater.pipelines.plan import Decision, Selection
    from headwater.pipelines.spec import Spec

SpecFile = Annotated[
    Path | None,
    typer.Option("--spec", help="The project's specification [spark-pipeline.yml here or above]."),
]
Data = Annotated[
    Path | None, typer.Option(help="Directory of the location [headwater in the spec's storage].")
]
Refresh = Annotated[
    list[str] | None, typer.Option(metavar="A,B", help="Bring only these datasets up to date.")
]
FullRefresh = Annotated[
    list[str] | None, typer.Option(metavar="A,B", help="Compute these from scratch.")
]
FullRefreshAll = Annotated[
    bool, typer.Option("--full-refresh-all", help="Compute everything from scratch.")
]

SAID: Final = {
    "create": "created",
    "replace": "computed from scratch",
    "rebuild": "computed from scratch",
    "maintain": "maintained",
    "append": "appended",
    "refill": "filled anew",
    "keep": "left alone",
    "skip": "left out",
}
_COLOURS: Final = {
    "create": "green",
    "replace": "yellow",
    "rebuild": "yellow",
    "refill": "yellow",
    "maintain": "cyan",
    "append": "cyan",
}


@dataclass(frozen=True, slots=True)
class _Place:
    data: Path | None
    blob: str
    consensus: str

    def location(self, spec: Spec) -> Path | None:
        """Return the directory of the location; None: it has none."""
        if self.data is not None:
            return self.data
        return None if self.blob and self.consensus else spec.location()


def run(
    spec: SpecFile = None,
    data: Data = None,
    blob: BlobAddress = "",
    consensus: ConsensusAddress = "",
    refresh: Refresh = None,
    full_refresh: FullRefresh = None,
    full_refresh_all: FullRefreshAll = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Fence whoever runs the location now.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring a project for Spark Declarative Pipelines up to date, incrementally."""
    from headwater import api
    from headwater.pipelines.run import Pipeline

    began = time.monotonic()
    selection, loaded = _asked(spec, refresh, full_refresh, full_refresh_all)
    place = _Place(data, blob, consensus)
    location = place.location(loaded)
    _require_machine(location, write=True)
    with (
        _status("starting Spark …") as shown,
        api.open(
            location or "",
            writable=True,
            blob=blob or None,
            consensus=consensus or None,
            take_over=take_over,
            timeout_s=0,
        ) as database,
    ):
        pipeline = Pipeline(loaded, database, database.engine.spark)
        shown.tell("", "reading the project …")
        pipeline.load()
        done = pipeline.run(selection, shown.tell, shown.count)
        forgotten = pipeline.forgotten()
    rows = {each.decision.name: each.rows for each in done}
    _print([each.decision for each in done], rows, forgotten, loaded, location, as_json)
    if not as_json:
        if location is not None:
            typer.echo(f"Everything is in {location}; look at it with")
            typer.echo(f'  headwater sql --data {location} "SELECT …"')
        typer.echo(f"{loaded.name} is up to date after {time.monotonic() - began:.1f} s.")


def check(
    spec: SpecFile = None,
    data: Data = None,
    blob: BlobAddress = "",
    consensus: ConsensusAddress = "",
    refresh: Refresh = None,
    full_refresh: FullRefresh = None,
    full_refresh_all: FullRefreshAll = False,
    as_json: Json = False,
) -> None:
    """Say what `headwater run` would do, dataset by dataset; nothing is changed."""
    from headwater import api
    from headwater.api.lazy_spark import LazySpark
    from headwater.pipelines.run import Pipeline

    selection, loaded = _asked(spec, refresh, full_refresh, full_refresh_all)
    place = _Place(data, blob, consensus)
    location = place.location(loaded)
    _require_machine(location, write=False)
    with _status("starting Spark …") as shown:
        database = None
        if location is None or (location / "log.db").is_file() or consensus:
            database = api.open(
                location or "", blob=blob or None, consensus=consensus or None, timeout_s=0
            )
        spark = LazySpark() if database is None else database.engine.spark
        try:
            pipeline = Pipeline(loaded, database, spark)
            shown.tell("", "reading the project …")
            pipeline.load()
            decisions = pipeline.decisions(selection)
            forgotten = pipeline.forgotten()
        finally:
            if database is not None:
                database.close()
            spark.close()
    _print(decisions, {}, forgotten, loaded, location, as_json, column="would be")
    if not as_json:
        typer.echo("Nothing was changed; `headwater run` does it.")


def _asked(
    spec: Path | None, refresh: list[str] | None, full: list[str] | None, full_all: bool
) -> tuple[Selection, Spec]:
    from headwater.pipelines import spec as specs
    from headwater.pipelines.plan import Selection

    selection = Selection(_names(refresh), _names(full), full_all)
    loaded = specs.load(spec if spec is not None else specs.find(Path.cwd()))
    loaded.files()  # Whatever is wrong with them is told before Spark is started.
    return selection, loaded


def _names(given: Sequence[str] | None) -> tuple[str, ...]:
    parts = (part.strip() for text in given or () for part in text.split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def _require_machine(location: Path | None, *, write: bool) -> None:
    """Refuse what cannot work before anything is opened."""
    from headwater.server.preflight import check_directory, check_java

    if write and location is not None:
        check_directory(location)
    check_java(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


@dataclass(slots=True)
class _Shown:
    """What a person sees of a run: which dataset is at work, and how far all of it is."""

    show: Show
    at: str = ""
    done: int = 0
    steps: int = 0
    rows: int = 0

    def tell(self, name: str, what: str) -> None:
        """Say what is at work."""
        self.at = f"{name}: {what}" if name else what
        self.show(self.at, self.done, self.steps, self.rows)

    def count(self, done: int, steps: int, rows: int) -> None:
        """Say how far it is."""
        self.done, self.steps, self.rows = done, steps, rows
        self.show(self.at, done, steps, rows)


@contextmanager
def _status(first: str) -> Iterator[_Shown]:
    """Show on a terminal's standard error what is being done."""
    with bar(first, "steps", patience_seconds=0) as show:
        yield _Shown(show)


def _print(
    decisions: Sequence[Decision],
    rows: dict[str, int | None],
    forgotten: Sequence[str],
    spec: Spec,
    location: Path | None,
    as_json: bool,
    column: str = "action",
) -> None:
    if as_json:
        told: list[dict[str, Any]] = []
        for each in decisions:
            line: dict[str, Any] = {
                "name": each.name,
                "kind": each.kind,
                "action": each.action,
                "because": each.because,
            }
            if rows.get(each.name) is not None:
                line["rows"] = rows[each.name]
            told.append(line)
        answer = {
            "pipeline": spec.name,
            "location": None if location is None else str(location),
            "datasets": told,
            "no_longer_declared": list(forgotten),
        }
        typer.echo(json.dumps(answer, ensure_ascii=False))
        return
    table = Table(title=f"pipeline {spec.name}", title_justify="left")
    for title in ("dataset", "kind", column, "because"):
        table.add_column(title)
    for each in decisions:
        count = rows.get(each.name)
        said = SAID[each.action] + ("" if count is None else f", {count:,} rows")
        colour = _COLOURS.get(each.action, "dim")
        table.add_row(each.name, each.kind, f"[{colour}]{said}[/{colour}]", each.because)
    Console(width=None if Console().is_terminal else 120).print(table)
    if forgotten:
        typer.echo(
            f"No longer declared, and kept as they are: {', '.join(forgotten)}; drop what is not "
            f"wanted with `headwater sql`."
        )
