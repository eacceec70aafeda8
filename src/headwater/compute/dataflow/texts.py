"""Texts of Spark SQL expressions: taken apart, and put together over other columns.

No parser: a text is the printer's (``compute/catalyst``), so columns are told by their form, calls
by their brackets, and what is in quotes is passed over.

Pure. Kept by: ``tests/unit/dataflow/test_passage.py``. Relied on by: ``passage.py`` and what
belongs to it, ``lower_window.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from headwater.compute.ir.expression import Expression
from headwater.compute.ir.refusal import InvalidPlan

Names = Mapping[str, str]
"""What stands for each column: a text."""

_LITERAL: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`"""
_NAME: Final = r"(?<![\w.])[a-z_][a-z0-9_]*_[0-9]+(?!\w)"
_TOKEN: Final = re.compile(
    rf"(?P<literal>{_LITERAL})|(?P<name>{_NAME}(?!\s*\()(?!\s*:(?!:)))", re.DOTALL
)
"""A literal, or the name of a column: no function, no field after a dot or before a colon."""
_CALL: Final = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)
_PART: Final = re.compile(rf"(?P<literal>{_LITERAL})|(?P<mark>[(),\[\]])|(?P<other>.)", re.DOTALL)


def substituted(expression: Expression, names: Names) -> str:
    """Return the text of an expression where these stand for its columns, fit to stand anywhere."""
    missing = set(expression.columns) - set(names)
    if missing:
        raise InvalidPlan(f"{expression.text} mentions {sorted(missing)}, which are not there")
    text = replaced(expression.text, names)
    return text if cheap(text) or _closed(text) else f"({text})"


def replaced(text: str, names: Names) -> str:
    """Return a text where these stand for the columns it mentions."""
    return _TOKEN.sub(lambda found: names.get(found["name"] or "", found[0]), text)


def mentioned(text: str) -> list[str]:
    """Return the names of columns in a text, as often as it has them."""
    return [found["name"] for found in _TOKEN.finditer(text) if found["name"]]


def with_columns(text: str, named: Names) -> str:
    """Return a text where columns stand for parts of it, the largest first; literals stay.

    >>> with_columns("lag(upper(s_1), 1, 'upper(s_1)')", {"upper(s_1)": "_argument_1"})
    "lag(_argument_1, 1, 'upper(s_1)')"
    """
    parts = sorted(named, key=len, reverse=True)
    ways = [rf"(?<![\w.]){re.escape(part)}(?![\w.])" for part in parts]
    return re.sub("|".join([*ways, _LITERAL]), lambda found: named.get(found[0], found[0]), text)


def cheap(text: str) -> bool:
    """Whether a text may be repeated: a slot, a field of a lambda's variable, a short literal."""
    return re.fullmatch(r"[\w.]+|'[^'\\]{0,40}'", text) is not None


def _closed(text: str) -> bool:
    """Whether a text begins with a parenthesis that only its end closes."""
    if not text.startswith("("):
        return False
    depth = 0
    for n, part in _parts(text):
        depth += {"(": 1, ")": -1}.get(part, 0)
        if depth == 0:
            return n == len(text)
    return False


def _parts(text: str) -> list[tuple[int, str]]:
    """Return marks, literals and other characters, each with where it ends."""
    return [(found.end(), found[0]) for found in _PART.finditer(text)]


def is_call(text: str) -> bool:
    """Whether a text is one call of a function, as far as its ends say."""
    return _CALL.fullmatch(text.strip()) is not None


def call_of(text: str) -> tuple[str, list[str]]:
    """Return the function of a call, in lower case, and the texts of its arguments."""
    found = _CALL.fullmatch(text.strip())
    if found is None:
        raise InvalidPlan(f"{text} is no call")
    return found[1].lower(), [argument.strip() for argument in _arguments(found[2])]


def _arguments(text: str) -> list[str]:
    arguments, depth = [""], 0
    for _, part in _parts(text):
        if part == "," and depth == 0:
            arguments.append("")
            continue
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(part, 0)
        arguments[-1] += part
    return arguments


def calls_in(text: str, prefix: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the outermost calls of functions whose names begin so: each whole, name, arguments.

    >>> list(calls_in("(f_a(x_1, 'f_b(') + f_c(f_d(y_1)))", "f_"))
    [("f_a(x_1, 'f_b(')", 'f_a', ['x_1', "'f_b('"]), ('f_c(f_d(y_1))', 'f_c', ['f_d(y_1)'])]
    """
    begins = re.compile(rf"{_LITERAL}|(?<!\w)`?(?P<name>{re.escape(prefix)}\w*)`?\(", re.DOTALL)
    at = 0
    while (found := begins.search(text, at)) is not None:
        at = found.end()
        if found["name"]:
            inside = text[at : at + _closing(text[at:])]
            at += len(inside) + 1
            arguments = [argument.strip() for argument in _arguments(inside)]
            yield text[found.start() : at], found["name"], arguments if inside.strip() else []


def _closing(text: str) -> int:
    """Return where the bracket closes that was opened before a text."""
    depth = 1
    for end, part in _parts(text):
        depth += {"(": 1, ")": -1}.get(part, 0)
        if depth == 0:
            return end - 1
    raise InvalidPlan(f"a bracket is not closed: {text}")


def with_answers(text: str, answers: Names) -> str:
    """Return a text where these stand for calls in it, the outermost first; literals stay.

    >>> with_answers("(f(x_1).a + f('f(x_1)'))", {"f(x_1)": "c"})
    "(c.a + f('f(x_1)'))"
    """
    if not answers:
        return text
    ways = [rf"(?<!\w){re.escape(call)}" for call in sorted(answers, key=len, reverse=True)]
    tokens = re.compile("|".join([*ways, _LITERAL]), re.DOTALL)
    return tokens.sub(lambda found: answers.get(found[0], found[0]), text)
