"""How far a long command is, on a terminal: what is done of what, rows, and the time left.

Nothing is shown where standard error is no terminal, nor of what is over soon: a bar that flashes
by says nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

PATIENCE_SECONDS: Final = 1.0
"""For how long a person waits without a sign."""

Show = Callable[[str, int, int, int], None]
"""Is told what is at work, how much is done of how much (0: nobody knows yet), and of how many
rows."""


class _Done(ProgressColumn):
    """What is done, in units and in rows."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Any) -> Text:
        """Return it as a text; nothing before it is known how much there is."""
        if not task.total:
            return Text("")
        done = f"{int(task.completed):,}/{int(task.total):,} {self._unit}"
        return Text(f"{done}, {task.fields['rows']:,} rows")


@contextmanager
def bar(what: str, unit: str, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[Show]:
    """Show how far something is, once it has taken so long; ``unit`` is counted beside rows."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda *_: None
        return
    began = time.monotonic()
    columns = (
        *(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), _Done(unit)),
        *(TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None, rows=0, visible=not patience_seconds)

        def show(at: str, done: int, total: int, rows: int) -> None:
            long = time.monotonic() - began >= patience_seconds
            progress.update(
                task,
                completed=done,
                total=total or None,
                description=at or what,
                visible=long,
                rows=rows,
            )

        yield show
