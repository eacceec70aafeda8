"""How far a long command is, on a terminal: what is done of what, rows, and the time left.

Nothing is shown where standard error is no terminal, nor of what is over soon: a bar that flashes
by says nothing.

    bar     one piece of work that tells how far it is
    Steps   several, one after another, between which something is printed; each counts the same
            for the time that is left
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
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
    # What is printed meanwhile goes where it is meant to go, not to the console of the bar.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
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


class Steps:
    """So many steps, one after another; see the module's docstring."""

    def __init__(
        self,
        unit: str,
        total: int,
        console: Console | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._unit, self._total = unit, total
        self._console = console or Console(stderr=True)
        self._patience_seconds = patience_seconds
        self._began = time.monotonic()
        self.done = 0
        self.rows = 0
        """How many rows the steps so far brought; whoever does them counts."""

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show a step while it is done, if that takes a while; afterwards nothing of it is left."""
        with self._shown(what) if self._console.is_terminal else nullcontext():
            yield
        self.done += 1

    @contextmanager
    def _shown(self, what: str) -> Iterator[None]:
        columns = (
            *(SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn()),
            *(_Done(self._unit), _Left(self)),
        )
        progress = Progress(*columns, console=self._console, transient=True, redirect_stdout=False)
        progress.add_task(what, total=self._total, completed=self.done, rows=self.rows)
        # Shown by another thread: this one waits for the work.
        late = threading.Timer(self._patience_seconds, progress.start)
        late.start()
        try:
            yield
        finally:
            late.cancel()
            late.join()
            progress.stop()

    def left(self) -> str:
        """Say how long the rest takes, if each step takes as long as those before did.

        >>> steps = Steps("statements", 4)
        >>> steps.left()
        ''
        >>> steps.done, steps._began = 3, time.monotonic() - 30.0
        >>> steps.left()
        '0:00:30, left 0:00:10'
        """
        spent = time.monotonic() - self._began
        if not self.done:
            return "" if spent < 1.0 else _clock(spent)
        return f"{_clock(spent)}, left {_clock(spent / self.done * (self._total - self.done))}"


class _Left(ProgressColumn):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def render(self, task: Any) -> Text:  # noqa: ARG002 - the steps know more than their task
        """Return the time that is spent, and what is left."""
        return Text(self._steps.left())


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=int(seconds)))
