"""Text → tree, such that the tree is how PostgreSQL reads the text.

sqlglot reads many dialects into one tree and rewrites on the way. Here it is held to less: function
calls stay calls by name, subscripts stay as written, an interval keeps its text. And where it binds
operators differently from PostgreSQL the tree would *mean* something else; :func:`_check_binding`
finds that, because brackets are nodes of their own: a tree whose unbracketed operand binds weaker
than its operator cannot be what PostgreSQL read, and is refused with the advice to add brackets.
"""

from __future__ import annotations

import re
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.tokens import TokenType

from headwater.adapter.dialect.refusal import refuse
from headwater.adapter.errors import SqlSyntaxError, Unsupported
from headwater.adapter.sql.tokens import UNREADABLE

_SYNTAX_FUNCTIONS: Final = ("CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION")
_FIELDS: Final = frozenset({"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"})

NESTING_MAX: Final = 200


class _Dialect(Postgres):  # type: ignore[misc]  # sqlglot is untyped to us
    INDEX_OFFSET = 0

    class Parser(Postgres.Parser):  # type: ignore[misc]
        FUNCTIONS: Final[dict[str, Any]] = {}
        FUNCTION_PARSERS: Final = {
            name: parse
            for name, parse in Postgres.Parser.FUNCTION_PARSERS.items()
            if name in _SYNTAX_FUNCTIONS
        }

        def _parse_interval(self, *_: Any, **__: Any) -> Any:
            """``INTERVAL '…'`` keeps its text; sqlglot's own reading drops all but one unit."""
            start = self._index
            if self._match(TokenType.INTERVAL) and self._match(TokenType.STRING):
                token = self._prev
                text = token.text
                if self._curr and self._curr.text.upper() in _FIELDS:
                    if not re.fullmatch(r"\s*[+-]?\d+\s*", text):
                        self.raise_error("INTERVAL with a field after a text of its own units")
                    text = f"{text.strip()} {self._curr.text}"  # INTERVAL '3' MONTH
                    self._advance()
                    if self._curr and self._curr.text.upper() == "TO":
                        self.raise_error("INTERVAL with two fields")
                literal = exp.Literal.string(text)
                literal.update_positions(token)
                return exp.Cast(this=literal, to=exp.DataType(this=exp.DataType.Type.INTERVAL))
            self._retreat(start)
            return None


def parse(sql: str) -> Any:
    """The tree of one query."""
    if "\0" in sql:
        raise SqlSyntaxError(None)
    try:
        trees = [tree for tree in sqlglot.parse(sql, dialect=_Dialect) if tree is not None]
    except UNREADABLE as error:
        raise _syntax_error(sql, error) from None
    except RecursionError:
        raise Unsupported("a query nested this deeply") from None
    trees = [tree for tree in trees if not isinstance(tree, exp.Semicolon)]
    if len(trees) != 1:
        raise SqlSyntaxError(None)
    tree = trees[0]
    if not isinstance(tree, exp.Query | exp.Values):
        raise Unsupported("a statement that is no query")
    for node in tree.walk():
        if node.depth > NESTING_MAX:
            raise Unsupported("a query nested this deeply")
        _check_binding(node)
    return tree


def _syntax_error(sql: str, error: Exception) -> SqlSyntaxError:
    for found in getattr(error, "errors", ()):
        near, line, column = found.get("highlight"), found.get("line"), found.get("col")
        if near and line and column:
            before = sum(len(text) + 1 for text in sql.split("\n")[: line - 1])
            return SqlSyntaxError(near, position=max(1, before + column - len(near) + 1))
    return SqlSyntaxError(None)


# How strongly PostgreSQL binds (its documentation, table 4.2), weakest first.
_OR, _AND, _NOT, _IS, _COMPARE, _RANGE, _OTHER, _ADD, _MULTIPLY, _POWER, _ZONE, _SIGN = range(12)
_ATOM: Final = 99

_BINDING: Final[dict[type, int]] = {
    exp.Or: _OR,
    exp.And: _AND,
    exp.Not: _NOT,
    exp.Is: _IS,
    exp.NullSafeEQ: _IS,
    exp.NullSafeNEQ: _IS,
    exp.EQ: _COMPARE,
    exp.NEQ: _COMPARE,
    exp.LT: _COMPARE,
    exp.LTE: _COMPARE,
    exp.GT: _COMPARE,
    exp.GTE: _COMPARE,
    exp.Between: _RANGE,
    exp.In: _RANGE,
    exp.Like: _RANGE,
    exp.ILike: _RANGE,
    exp.Escape: _RANGE,
    exp.RegexpLike: _OTHER,
    exp.RegexpILike: _OTHER,
    exp.DPipe: _OTHER,
    exp.BitwiseAnd: _OTHER,
    exp.BitwiseOr: _OTHER,
    exp.BitwiseXor: _OTHER,
    exp.BitwiseLeftShift: _OTHER,
    exp.BitwiseRightShift: _OTHER,
    exp.Add: _ADD,
    exp.Sub: _ADD,
    exp.Mul: _MULTIPLY,
    exp.Div: _MULTIPLY,
    exp.Mod: _MULTIPLY,
    exp.Pow: _POWER,
    exp.AtTimeZone: _ZONE,
    exp.Neg: _SIGN,
}
_LEFT_ASSOCIATIVE: Final = frozenset({_OR, _AND, _OTHER, _ADD, _MULTIPLY, _POWER, _ZONE})


def _binding(node: Any) -> int:
    if isinstance(node, exp.Not) and isinstance(
        node.this, exp.Between | exp.In | exp.Like | exp.ILike | exp.Escape
    ):
        return _RANGE  # NOT IN, NOT LIKE …: one operator
    if isinstance(node, exp.Not) and isinstance(node.this, exp.RegexpLike | exp.RegexpILike):
        return _OTHER  # !~
    if isinstance(node, exp.Not) and isinstance(node.this, exp.Is):
        return _IS  # IS NOT TRUE
    return _BINDING.get(type(node), _ATOM)


def _check_binding(node: Any) -> None:
    strength = _BINDING.get(type(node))
    if strength is None:
        return
    for part, child in (("this", node.this), ("expression", node.args.get("expression"))):
        if not isinstance(child, exp.Expression):
            continue
        inner = _binding(child)
        same = inner == strength
        if isinstance(node, exp.Not) or (isinstance(node, exp.Escape) and part == "this"):
            fits = inner >= strength
        elif same and strength in (_OR, _AND):
            fits = True  # associative: either grouping means the same
        else:
            fits = inner > strength or (same and part == "this" and strength in _LEFT_ASSOCIATIVE)
        if not fits:
            refuse(node, "this order of operators", "Add parentheses.")
