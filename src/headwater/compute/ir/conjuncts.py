"""The conjuncts of a condition, told from its text.

    conjuncts(c)  =  c1, c2, …    c is true of a row iff each of them is

Catalyst's printer has brackets around every ``AND``, and no other word of SQL has one in it (it
writes ``between(x, a, b)``); where a text is not of that form, the condition is its own conjunct.
They are asked in turn, each of the rows on which those before are true (``in_turn.py``): who takes
a condition apart asks first whether one of them may fail.

Pure. Kept by: this module. Relied on by: ``dataflow/lower_join.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.compute.ir.expression import BOOLEAN, NAME, Expression

_AND: Final = " AND "


def conjuncts(condition: Expression) -> tuple[Expression, ...]:
    """Return the parts of a condition, from left to right."""
    texts = _parts(condition.text)
    if len(texts) == 1:
        return (condition,)
    return tuple(_part(text, condition) for text in texts)


def conjunction(parts: Sequence[Expression]) -> Expression:
    """Return the condition that all of these are true."""
    first, *others = parts
    for other in others:
        columns = tuple(sorted({*first.columns, *other.columns}))
        first = Expression(f"({first.text}{_AND}{other.text})", BOOLEAN, True, columns)
    return first


def _part(text: str, of: Expression) -> Expression:
    # A literal may look like a name: then there is one column more, which harms nobody.
    mentioned = set(NAME.findall(text))
    columns = tuple(name for name in of.columns if name in mentioned)
    return Expression(text, BOOLEAN, of.nullable, columns)


def _parts(text: str) -> list[str]:
    """Take a text apart at the words outside of all brackets but its own, and its parts likewise.

    >>> _parts("((a_1 > 2) AND ((b_1 = ') AND (') AND (c_1 OR d_1)))")
    ['(a_1 > 2)', "(b_1 = ') AND (')", '(c_1 OR d_1)']
    >>> _parts("(a_1 > 2) AND (b_1 > 2)"), _parts("(NOT (a_1 AND b_1))")
    (['(a_1 > 2) AND (b_1 > 2)'], ['(NOT (a_1 AND b_1))'])
    """
    cuts, depth, at = [0], 0, 0
    while at < len(text):
        match text[at]:
            case "'":
                at = _end_of_string(text, at)
            case "(":
                depth += 1
            case ")":
                depth -= 1
                if not depth and at < len(text) - 1:
                    return [text]
            case " " if depth == 1 and text.startswith(_AND, at):
                cuts.append(at)
        if not depth:
            break  # Nothing is around all of it, or this is its end.
        at += 1
    if len(cuts) == 1 or depth or at != len(text) - 1 or " BETWEEN " in text.upper():
        return [text]
    ends = [*cuts[1:], len(text) - 1]
    starts = [1, *(cut + len(_AND) for cut in cuts[1:])]
    return [
        part for start, end in zip(starts, ends, strict=True) for part in _parts(text[start:end])
    ]


def _end_of_string(text: str, start: int) -> int:
    at = start + 1
    while at < len(text) and text[at] != "'":
        at += 2 if text[at] == "\\" else 1
    return at
