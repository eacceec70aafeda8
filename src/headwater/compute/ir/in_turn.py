"""Conditions that are asked one after the other, each of the rows on which those before are true.

    c1 AND c2,  c1 NULL, c2 fails      Spark's filter, in generated code:    the row is left out
                                       the same filter, interpreted:         an error
                                       ``AND`` in a join, or in an edge:     an error

So which it is depended on how many rows a table has. Where something may fail behind a part that
may be NULL, that part is compared with true here: never NULL, so ``AND`` stops at it wherever it is
evaluated. That goes for filters below as well: Spark makes one condition of two of them.

    d_1 > 0 AND 10 / k_1 > 1    becomes    (d_1 > 0) <=> true AND 10 / k_1 > 1

A plan is made so when it is made, and so all who evaluate it agree, for as long as it is stored.

Pure. Kept by: ``tests/unit/compute_ir/test_in_turn.py``, and by random queries on few and on many
rows. Relied on by: ``catalyst/translate.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from headwater.compute.ir.conjuncts import conjunction, conjuncts
from headwater.compute.ir.expression import BOOLEAN, NAME, Column, Expression
from headwater.compute.ir.fallible import may_fail
from headwater.compute.ir.node import Filter, Join, Node, over

_TRUE: Final = " <=> true)"
_KNOWN: Final = re.compile(rf"\({NAME.pattern} IS (?:NOT )?NULL\)|.*{re.escape(_TRUE)}", re.DOTALL)
"""Texts of what is never NULL."""


def in_turn(node: Node, *, fails_after: bool = False) -> Node:
    """Return the plan with its conditions so; ``fails_after``: one that is asked later may fail."""
    match node:
        case Filter(below, condition):
            condition, fails_after = _asked(condition, below.columns, fails_after)
            return Filter(in_turn(below, fails_after=fails_after), condition)
        case Join(left, right, _, _, residual) if residual is not None:
            columns = (*left.columns, *right.columns)
            residual, fails_after = _asked(residual, columns, fails_after)
            node = msgspec.structs.replace(node, residual=residual)
    return over(node, lambda below: in_turn(below, fails_after=fails_after))


def plainly(condition: Expression) -> Expression:
    """Return a condition as the query has it: true of the same rows."""
    if not condition.text.endswith(_TRUE):
        return condition
    text = condition.text[1 : -len(_TRUE)]
    return Expression(text, BOOLEAN, True, condition.columns)


def _asked(
    condition: Expression, columns: Sequence[Column], fails_after: bool
) -> tuple[Expression, bool]:
    """Return a condition, and whether it or what comes after it may fail."""
    types = {column.name: column.type for column in columns}
    parts: list[Expression] = []
    changed = False
    for part in reversed(conjuncts(condition)):
        if fails_after and part.nullable and not _KNOWN.fullmatch(part.text):
            text = f"({part.text}{_TRUE}"
            parts.append(Expression(text, BOOLEAN, False, part.columns))
            changed = True
        else:
            parts.append(part)
        fails_after = fails_after or may_fail(part, types)
    return (conjunction(parts[::-1]) if changed else condition), fails_after
