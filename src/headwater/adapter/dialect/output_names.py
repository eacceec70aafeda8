"""What PostgreSQL calls a column of a result that has no alias (its ``FigureColname``)."""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

from headwater.adapter.sql.query import folded

UNNAMED: Final = "?column?"

_TYPE_NAMES: Final = {
    "boolean": "bool",
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
    "void": "text",
}
_TRIMS: Final = {"LEADING": "ltrim", "TRAILING": "rtrim"}


def type_name(name: str) -> str:
    """A type by the name of its row in ``pg_type``."""
    return _TYPE_NAMES.get(name, name)


def output_name(node: Any, cast_to: str | None = None) -> str:
    """The name; ``cast_to`` is the type (as in ``pg_type``) if ``node`` is a cast."""
    return _named(node, cast_to)[0] or UNNAMED


def _named(node: Any, cast_to: str | None = None) -> tuple[str | None, bool]:
    """(name, whether it is a strong one that a cast or CASE around it keeps)."""
    match node:
        case exp.Alias():
            return folded(node.args["alias"]), True
        case exp.Paren():
            return _named(node.this, cast_to)
        case exp.Column():
            return folded(node.this), True
        case exp.Cast():
            name, strong = _named(node.this)
            return (name, True) if strong else (cast_to or name, False)
        case exp.Collate() | exp.Bracket():
            return _named(node.this)
        case exp.Case():
            default = node.args.get("default")
            name, strong = _named(default) if default is not None else (None, False)
            return (name, True) if strong else ("case", False)
        case exp.Subquery():
            select = node.this
            while isinstance(select, exp.SetOperation | exp.Subquery):
                select = select.this
            outputs = select.expressions if isinstance(select, exp.Select) else ()
            return (_named(outputs[0])[0], True) if outputs else (None, False)
        case exp.Window() | exp.Filter() | exp.WithinGroup():
            return _named(node.this)
        case exp.Dot():
            return _named(node.expression)
        case exp.Anonymous():
            name = node.this
            return (name.lower() if isinstance(name, str) else folded(name)), True
        case _:
            return _of_syntax(node), _of_syntax(node) is not None


def _of_syntax(node: Any) -> str | None:
    match node:
        case exp.Substring():
            return "substring"
        case exp.Trim():
            return _TRIMS.get(node.args.get("position") or "", "btrim")
        case exp.StrPosition():
            return "position"
        case exp.Extract():
            return "extract"
        case exp.Exists():
            return "exists"
        case exp.Array():
            return "array"
        case exp.AtTimeZone():
            return "timezone"
        case exp.CurrentDate():
            return "current_date"
        case exp.CurrentTimestamp():
            return "current_timestamp"
        case _:
            return None
