"""``headwater sql``: statements from the command line, a file or a pipe; answers as tables or JSON.

It speaks to a running server by its address, as psql would, or opens a location's directory itself:
read-only, beside a server that may be writing it. Statements are executed one after another, each
on its own, up to the first that fails. With ``--json`` every answer is one line. On a terminal it
shows which statement of how many is executed, the rows so far, and the time that is left.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.cli.exit_status import CannotAsk, CannotOpen
from headwater.cli.progress import Steps

PIPE_WIDTH: Final = 200
SHOWN_MAX: Final = 40
"""Characters of a statement that are shown while it is executed."""


class StatementFailed(HeadwaterError):
    """What was said to a statement, by a server or by a location."""

    def __init__(self, said: str, detail: str | None, hint: str | None, sqlstate: str) -> None:
        rest = "".join(f" {part}" for part in (detail, hint) if part)
        super().__init__(f"{said}{rest} ({sqlstate})" if sqlstate else f"{said}{rest}")


@dataclass(frozen=True, slots=True)
class Answered:
    """What a statement gave: its tag, and rows if it has columns."""

    tag: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]


Execute = Callable[[str], Answered]


def sql(
    text: Annotated[
        str | None, typer.Argument(help="Statements; - or nothing: standard input.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="File of statements instead.")
    ] = None,
    server: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Server to speak to [HEADWATER_LISTEN].")
    ] = "",
    data: Annotated[
        Path | None, typer.Option(help="Open this location itself, read-only, instead.")
    ] = None,
    user: Annotated[
        str, typer.Option(help="User at the server; PGPASSWORD has the password.")
    ] = "headwater",
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON per answer.")] = False,
) -> None:
    """Execute SQL and print the answers."""
    from headwater.adapter.sql.tokens import split

    if data is not None and server:
        raise InvalidUsage("give --server or --data, not both")
    statements = [source.text for source in split(_text(text, file))]
    opened = _location(data) if data is not None else _server(server, user)
    with opened as execute:
        steps = Steps("statements", len(statements))
        for statement in statements:
            with steps.step(" ".join(statement.split())[:SHOWN_MAX]):
                answer = execute(statement)
            steps.rows += len(answer.rows)
            _print(answer, as_json)


def _text(text: str | None, file: Path | None) -> str:
    if file is not None:
        if text is not None:
            raise InvalidUsage("give statements or --file, not both")
        try:
            return file.read_text("utf-8")
        except OSError as error:
            raise CannotAsk(f"{file} cannot be read: {error.strerror}; check --file") from None
        except UnicodeDecodeError as error:
            raise CannotAsk(f"{file} cannot be read: {error}; write it in UTF-8") from None
    if text is None or text == "-":
        if sys.stdin.isatty() and text is None:
            raise InvalidUsage("which statements? give them in quotes, with --file, or by a pipe")
        return sys.stdin.read()
    return text


@contextmanager
def _server(address: str, user: str) -> Iterator[Execute]:
    import psycopg

    from headwater.server.config import PORT_DEFAULT, parse_address

    given = address or os.environ.get("HEADWATER_LISTEN") or f"127.0.0.1:{PORT_DEFAULT}"
    where = parse_address(given, "--server")
    try:
        connection = psycopg.connect(
            host=where.host, port=where.port, user=user, dbname="headwater", autocommit=True
        )
    except psycopg.OperationalError as error:
        raise _unreachable(str(error), where, user) from None

    def execute(statement: str) -> Answered:
        try:
            cursor = connection.execute(statement.encode())
        except psycopg.Error as error:
            said = error.diag
            raise StatementFailed(
                said.message_primary or str(error).strip(),
                said.message_detail,
                said.message_hint,
                said.sqlstate or "",
            ) from None
        if cursor.description is None:
            return Answered(cursor.statusmessage or "", (), ())
        names = tuple(column.name for column in cursor.description)
        return Answered(cursor.statusmessage or "", names, cursor.fetchall())

    with connection:
        yield execute


def _unreachable(said: str, where: object, user: str) -> CannotAsk:
    """Return what to do about a server that does not let us in, or that is not there.

    >>> str(_unreachable('to "h", port 1 failed: FATAL:  no such user', "h:1", "ann"))[:44]
    "the server at h:1 refuses 'ann': no such use"
    """
    # What libpq adds to its reason begins with a tab.
    reasons = [line for line in said.splitlines() if line.strip() and not line.startswith("\t")]
    reason = reasons[-1].rpartition("failed: ")[2]
    if reason.startswith("FATAL:"):
        why = reason.removeprefix("FATAL:").strip()
        return CannotAsk(
            f"the server at {where} refuses {user!r}: {why}; name a user of its file with --user, "
            "and put the password into PGPASSWORD"
        )
    return CannotAsk(
        f"no server answers at {where}: {reason}; start one with `headwater serve --data DIR`, "
        "or name its address with --server"
    )


@contextmanager
def _location(data: Path) -> Iterator[Execute]:
    if not (data / "log.db").is_file():
        raise CannotOpen(f"{data} is not a location: it has no log.db; check the path")
    from headwater import api
    from headwater.adapter.errors import AdapterError

    with api.open(data) as database:

        def execute(statement: str) -> Answered:
            try:
                answer = database.sql(statement)
            except AdapterError as error:
                raise StatementFailed(
                    error.primary, error.detail, error.hint, error.sqlstate
                ) from None
            return Answered(answer.tag, answer.columns, answer.fetchall())

        yield execute


def _print(answer: Answered, as_json: bool) -> None:
    if as_json:
        line: dict[str, Any] = {"tag": answer.tag}
        if answer.columns:
            line["columns"] = answer.columns
            line["rows"] = [[_plain(value) for value in row] for row in answer.rows]
        typer.echo(json.dumps(line, ensure_ascii=False))
        return
    if not answer.columns:
        typer.echo(answer.tag)
        return
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    count = len(answer.rows)
    table = Table(caption=f"{count:,} row{'s' * (count != 1)}", caption_justify="left")
    numbers = [
        all(isinstance(row[place], int | float | Decimal) for row in answer.rows)
        for place in range(len(answer.columns))
    ]
    for name, number in zip(answer.columns, numbers, strict=True):
        table.add_column(name, justify="right" if number and answer.rows else "left")
    for row in answer.rows:
        table.add_row(*("NULL" if value is None else str(value) for value in row))
    console.print(table, markup=False)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; exact numbers stay exact, as texts."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, date | datetime) else str(value)
