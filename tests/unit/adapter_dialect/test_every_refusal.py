"""Every place of the dialect that says no is reached by a statement: none is dead, none untried.

The places are found in the sources: what is raised, and each call of ``refuse``. The statements are
those that other tests expect to be refused, a list of their own (``refusal_corpus.py``), and all
calls, casts and operators over columns of all types. Which place refused one, the traceback says.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from traceback import walk_tb
from typing import Final

import pytest

from headwater.adapter import dialect
from headwater.adapter.dialect import expressions, to_spark
from headwater.adapter.dialect.aggregates import AGGREGATES
from headwater.adapter.dialect.expressions import FUNCTIONS
from headwater.adapter.errors import AdapterError
from headwater.collection.types import scalar
from tests.unit.adapter_dialect.refusal_corpus import REFUSED
from tests.unit.adapter_dialect.relations import RELATIONS
from tests.unit.adapter_dialect.test_refusals import MISTAKES, OUTSIDE

Site = tuple[str, int, int]
"""A module of the package, and the first and last line of a statement in it."""

_PACKAGE: Final = Path(dialect.__file__).parent
_ARGUMENTS: Final = ("i4", "n", "f", "s", "b", "d", "arr", "words", "iv", "'a'", "null", "j", "u")
_OPERATORS: Final = ("+", "-", "*", "/", "%", "||", "=", "<", "&", "like", "~", "is distinct from")
_TYPES: Final = (
    *("int", "numeric", "numeric(5,2)", "real", "float8", "text", "boolean", "date", "timestamp"),
    *("timestamptz", "interval", "uuid", "jsonb", "bytea", "int[]"),
)
_RELATIONS: Final = {
    **RELATIONS,
    "x": {**RELATIONS["x"], "j": scalar("jsonb"), "u": scalar("uuid")},
    "a.t": RELATIONS["y"],
    "b.t": RELATIONS["y"],
}


def _sites() -> Iterator[Site]:
    for path in sorted(_PACKAGE.glob("*.py")):
        if path.name == "refusal.py":
            continue  # It raises what others call it for.
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Raise(exc=ast.expr()) | ast.Call(func=ast.Name(id="refuse")):
                    yield path.name, node.lineno, node.end_lineno or node.lineno
                case _:
                    pass


def _generated() -> Iterator[str]:
    for name in (*FUNCTIONS, *AGGREGATES):
        yield f"select {name}() from x"
        for given in _ARGUMENTS:
            for more in ("", ", i4", ", 's'", ", 1, i4"):
                yield f"select {name}({given}{more}) from x"
    for operator, left, right in product(_OPERATORS, _ARGUMENTS, _ARGUMENTS):
        yield f"select {left} {operator} {right} from x"
    for value, type_ in product(_ARGUMENTS, _TYPES):
        yield f"select {value}::{type_} from x"


def _reached(sql: str) -> set[tuple[str, int]]:
    """Where the package was when it refused; nowhere if it did not."""
    try:
        to_spark(sql, _RELATIONS)
    except AdapterError as error:
        return {
            (Path(frame.f_code.co_filename).name, line)
            for frame, line in walk_tb(error.__traceback__)
            if Path(frame.f_code.co_filename).parent == _PACKAGE
        }
    return set()


def _with_little_stack(sql: str) -> set[tuple[str, int]]:
    known = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    try:
        return _reached(sql)
    finally:
        sys.setrecursionlimit(known)


def _at(lines: set[tuple[str, int]], sites: set[Site]) -> set[Site]:
    return {
        (module, first, last)
        for module, first, last in sites
        if any(name == module and first <= line <= last for name, line in lines)
    }


def test_every_refusal_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = set(_sites())
    assert len(sites) > 150
    expected = [sql for sql, *_ in (*OUTSIDE, *MISTAKES)] + list(REFUSED)
    for sql in REFUSED:
        assert _reached(sql), f"{sql}: taken"
    for sql in expected:
        sites -= _at(_reached(sql), sites)
    # Two limits that take seconds to reach, or a caller deep in Python's stack, are lowered.
    with monkeypatch.context() as patched:
        patched.setattr(expressions, "STEPS_MAX", 9)
        sites -= _at(_reached("select 1, 2, 3, 4, 5, 6, 7, 8, 9, 10"), sites)
    sites -= _at(_with_little_stack("select " + " and ".join(["true"] * 150)), sites)
    for sql in _generated():
        if not sites:
            break
        sites -= _at(_reached(sql), sites)
    untried = [f"{module}:{first}" for module, first, _ in sorted(sites)]
    assert not untried, "no statement is refused there: " + ", ".join(untried)
