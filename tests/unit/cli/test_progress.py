"""What is shown of several steps: which of how many, the rows so far, the time that is left."""

from __future__ import annotations

import io
import threading

from rich.console import Console

from headwater.cli.progress import Steps

WAIT_SECONDS = 60.0


class Shown(io.StringIO):
    """What a terminal gets, and a sign when that has some words."""

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self._wanted, self.come = wanted, threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._wanted in self.getvalue():
            self.come.set()
        return written


def test_a_step_that_takes_long_says_how_far_all_of_them_are() -> None:
    terminal = Shown(", left 0:")
    console = Console(file=terminal, force_terminal=True, width=200)
    steps = Steps("statements", 3, console, patience_seconds=0.0)
    with steps.step("SELECT 1"):
        pass
    steps.rows += 7
    with steps.step("SELECT [2]"):
        assert terminal.come.wait(WAIT_SECONDS), terminal.getvalue()
    shown = terminal.getvalue()
    assert "SELECT [2]" in shown
    assert "1/3 statements, 7 rows" in shown
    assert steps.done == 2


def test_nothing_is_shown_of_what_is_over_soon_nor_where_there_is_no_terminal() -> None:
    for terminal in (True, False):
        shown = io.StringIO()
        console = Console(file=shown, force_terminal=terminal)
        steps = Steps("statements", 1, console, 3_600.0 if terminal else 0.0)
        with steps.step("SELECT 1"):
            pass
        assert shown.getvalue() == ""
        assert steps.done == 1
