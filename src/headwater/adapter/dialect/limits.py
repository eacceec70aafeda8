"""LIMIT, OFFSET and FETCH: numbers, as Spark takes them."""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

from headwater.adapter.dialect.refusal import only, refuse

LIMIT_MAX: Final = 2**31 - 1


def limit(node: Any) -> str:
    """Return what stands at the end of a query."""
    text = ""
    for part, word in (("limit", "LIMIT"), ("offset", "OFFSET")):
        clause = node.args.get(part)
        if clause is None:
            continue
        if isinstance(clause, exp.Fetch):
            only(clause, "direction", "count", "limit_options")
            options = clause.args.get("limit_options")
            if options is not None and (
                options.args.get("percent") or options.args.get("with_ties")
            ):
                refuse(clause, "FETCH … PERCENT or WITH TIES")
            count = clause.args.get("count")
        else:
            only(clause, "expression")
            count = clause.expression
        if isinstance(count, exp.Null) or (isinstance(count, exp.Var) and count.name == "ALL"):
            continue
        if not isinstance(count, exp.Literal) or not str(count.this).isdigit():
            refuse(clause, f"{word} of what is no number")
        if int(count.this) > LIMIT_MAX:
            if part == "limit":
                continue  # more rows than there can be
            refuse(clause, f"{word} {count.this}")
        text += f" {word} {int(count.this)}"
    return text
