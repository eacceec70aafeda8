"""Directive files: a test as a story that can be reviewed, and rewritten by the code itself.

A file is a sequence of comments (``#``), blank lines and cases:

    # What the reader should know.
    command key=value "key=value with spaces" flag
    input, as many lines as wanted
    ----
    the output, up to the next blank line

An output that itself has blank lines stands between two doubled separators (``----`` twice before
it and twice after it). Words are split like a shell's; a word without ``=`` is a flag whose value
is ``""``. Input loses its common indentation.

:func:`run_file` gives every case to a handler *in order* (the handler keeps the state) and compares
the file with the one that the answers would make. With ``REWRITE=1`` it writes that file instead,
and ``git diff`` shows what changed. A suite is one handler:

    @pytest.mark.parametrize("path", collect(FOLDER), ids=lambda path: path.stem)
    def test_log(path: Path) -> None:
        run_file(path, Harness().handle)
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

SEPARATOR = "----"


class MalformedFile(ValueError):
    """A directive file cannot be read; the message has the line."""


@dataclass(frozen=True, slots=True)
class Directive:
    """One case: what to do. ``line`` is where it stands in its file, from 1."""

    command: str
    args: dict[str, str]
    input: str
    line: int


def collect(folder: Path) -> list[Path]:
    """Return the directive files below ``folder`` in order; there must be some."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in {"", ".txt"})
    assert paths, f"no directive files below {folder}"
    return paths


def run_file(path: Path, handler: Callable[[Directive], str]) -> None:
    """Run every case of the file; raise with a diff where an output is not the expected one."""
    expected = path.read_text(encoding="utf-8")
    actual = _answered(path, expected.splitlines(), handler)
    if actual == expected:
        return
    if os.environ.get("REWRITE"):
        path.write_text(actual, encoding="utf-8")
        return
    lines = difflib.unified_diff(
        expected.splitlines(), actual.splitlines(), f"{path.name} (expected)", "actual", lineterm=""
    )
    raise AssertionError("\n".join([*lines, "", "If the new output is right: REWRITE=1"]))


def _answered(path: Path, lines: list[str], handler: Callable[[Directive], str]) -> str:
    written: list[str] = []
    position = 0
    while position < len(lines):
        line = lines[position]
        if not line.strip() or line.startswith("#"):
            written.append(line)
            position += 1
            continue
        start = position
        while position < len(lines) and lines[position] != SEPARATOR:
            position += 1
        if position == len(lines):
            raise MalformedFile(f"{path}:{start + 1}: no {SEPARATOR} after {line!r}")
        case = lines[start:position]
        directive = _parsed(path, start, case)
        position = _after_output(path, lines, position + 1)
        try:
            output = handler(directive).rstrip("\n")
        except Exception as error:
            error.add_note(f"{path}:{start + 1}: {line}")
            raise
        written += [*case, *_framed(output)]
    return "".join(f"{line}\n" for line in written)


def _parsed(path: Path, start: int, lines: list[str]) -> Directive:
    try:
        command, *words = shlex.split(lines[0])
    except ValueError as error:
        raise MalformedFile(f"{path}:{start + 1}: {error}") from error
    args: dict[str, str] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key in args:
            raise MalformedFile(f"{path}:{start + 1}: {key} is given twice")
        args[key] = value
    return Directive(command, args, dedent("\n".join(lines[1:])), start + 1)


def _after_output(path: Path, lines: list[str], position: int) -> int:
    """Return the line after the expected output that begins at ``position``."""
    if lines[position : position + 1] != [SEPARATOR]:
        while position < len(lines) and lines[position].strip():
            position += 1
        return position
    for end in range(position + 1, len(lines) - 1):
        if lines[end] == lines[end + 1] == SEPARATOR:
            return end + 2
    raise MalformedFile(f"{path}:{position}: the doubled {SEPARATOR} is not closed")


def _framed(output: str) -> list[str]:
    lines = output.splitlines()
    if all(line.strip() for line in lines) and lines[:1] != [SEPARATOR]:
        return [SEPARATOR, *lines]
    return [SEPARATOR, SEPARATOR, *lines, SEPARATOR, SEPARATOR]
