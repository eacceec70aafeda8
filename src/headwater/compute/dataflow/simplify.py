"""A plan as one that means the same and is easier to keep.

    an outer join under a filter that rejects its padded rows     a join that does not pad them
    a key that is a struct                                         a key per field

A filter *rejects* NULLs of a column if it compares it, bare or cast, with another column or with a
literal: then it is not true where the column is NULL. Correlated subqueries come as such left joins
(TPC-H 2, 17, 20), and without the padding there is no anti join to keep.

Two structs are equal if their fields are, NULL fields too; a NULL struct equals another by ``<=>``
only. So ``a = b`` is: both are there, and each field by ``<=>``.

Pure. Relied on by: ``lower.py``, ``lower_match.py``.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from headwater.compute.dataflow.flow import is_key
from headwater.compute.ir.expression import BOOLEAN, NAME, Column, Expression, JoinKey
from headwater.compute.ir.node import Filter, Join, JoinKind, Node, over

_TYPED: Final = r"(?: AS [A-Z]+(?:\([0-9]+,[0-9]+\))?\))*"
_BARE: Final = rf"(?:CAST\()*({NAME.pattern}){_TYPED}"
_LITERAL: Final = rf"(?:CAST\()*(?:[A-Z]+ )?(?:'[^'\\]*'|[0-9][0-9.]*[A-Z]*){_TYPED}"
_COMPARED: Final = re.compile(rf"\((?:{_BARE}|{_LITERAL}) (?:=|<|<=|>|>=) (?:{_BARE}|{_LITERAL})\)")

_PADS: Final[dict[tuple[JoinKind, bool, bool], JoinKind]] = {
    ("left", False, True): "inner",
    ("left", True, True): "inner",
    ("right", True, False): "inner",
    ("right", True, True): "inner",
    ("full", True, True): "inner",
    ("full", True, False): "left",
    ("full", False, True): "right",
}
"""What is left of a join if NULLs on its left, or on its right, are rejected."""


def simplified(node: Node) -> Node:
    """Return the plan with every operator in its simplest form."""
    node = over(node, simplified)
    match node:
        case Filter(Join() as join, condition):
            return Filter(_unpadded(join, condition), condition)
        case Join():
            keys = tuple(part for key in node.keys for part in by_field(key))
            return node if keys == node.keys else msgspec.structs.replace(node, keys=keys)
        case _:
            return node


def _unpadded(join: Join, condition: Expression) -> Join:
    found = _COMPARED.fullmatch(condition.text)
    if found is None:
        return join
    compared = {found[1], found[2]}
    rejected = (
        join.kind,
        bool(compared & {column.name for column in join.left.columns}),
        bool(compared & {column.name for column in join.right.columns}),
    )
    kind = _PADS.get(rejected)
    return join if kind is None else msgspec.structs.replace(join, kind=kind)


def by_field(key: JoinKey) -> tuple[JoinKey, ...]:
    """Return the keys that together compare as this one does, none of them a struct."""
    if is_key(key.left) or key.comparison == "=?":
        return (key,)
    type_ = Column("_c_0", key.left.type, True).sql_type
    if type_.name != "struct":
        return (key,)
    strict = key.comparison == "="
    flags = [_flag(side, strict) for side in (key.left, key.right)]
    found = [JoinKey(flags[0], flags[1], key.comparison)]
    for name, part in type_.parts:
        sides = [field_of(side, name, part.spark) for side in (key.left, key.right)]
        found.extend(by_field(JoinKey(sides[0], sides[1], "<=>")))
    return tuple(found)


def _flag(struct: Expression, strict: bool) -> Expression:
    """Return what is equal for two structs if both are there, or, not strictly, neither."""
    if strict:
        text = f"CASE WHEN ({struct.text} IS NULL) THEN CAST(NULL AS BOOLEAN) ELSE true END"
        return Expression(text, BOOLEAN, True, struct.columns)
    return Expression(f"({struct.text} IS NULL)", BOOLEAN, False, struct.columns)


def field_of(struct: Expression, name: str, type_: str) -> Expression:
    """Return a field of a struct."""
    quoted = name.replace("`", "``")
    text = struct.text if struct.is_column else f"({struct.text})"
    return Expression(f"{text}.`{quoted}`", type_, True, struct.columns)
