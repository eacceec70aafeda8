"""The command ``headwater``: which commands there are, and how errors are told.

A command is a function in a module of its own; to add one is to add it to :data:`COMMANDS`.

Every error of ours ends a command with one sentence on standard error and a status that a script
can tell apart (:class:`~headwater.cli.exit_status.ExitStatus`). A traceback means a bug.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import typer
from typer.core import TyperGroup

from headwater.base.errors import HeadwaterError
from headwater.cli import (
    backup,
    connector,
    demo,
    exit_status,
    fsck,
    inspect,
    run,
    serve,
    sql,
    user,
    version,
)

COMMANDS: Final[tuple[Callable[..., None], ...]] = (
    demo.demo,
    serve.serve,
    sql.sql,
    run.run,
    run.check,
    inspect.inspect,
    fsck.fsck,
    backup.backup,
    backup.restore,
    connector.connector,
    user.user,
    version.version,
)


class _Group(TyperGroup):
    """Runs a command, and turns our errors into a sentence and a status."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HeadwaterError as error:
            typer.echo(f"headwater: {error}", err=True)
            raise typer.Exit(exit_status.of(error)) from error


app = typer.Typer(
    name="headwater",
    cls=_Group,
    help="SQL views over changing data, kept exactly right, delivered exactly once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in COMMANDS:
    app.command()(command)
