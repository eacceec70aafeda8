"""The union of two JSON schemas: one under which every document of either is valid.

Widening, never narrowing: a keyword is kept where both sides have it and can be united, and dropped
where one side lacks it, because its absence permits everything. What constrains only some types
(``maxLength``, ``properties``, …) is kept as it is where the other side permits no such type. A
keyword that we do not know is kept only if both sides say the same; two equal schemas are their
own union.

Law (``test_schema_union.py``): ``valid(a, doc) or valid(b, doc)`` implies ``valid(united(a, b),
doc)``.

Unlike Flow we write no ``$schema`` where there was none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import jsonschema_rs

from headwater.materialize.reduction.value import ABSENT, Json, order

Schema = bool | dict[str, Any]

_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")


class NotASchema(ValueError):
    """A value that is no JSON schema."""


def united(left: Json, right: Json) -> Schema:
    """Return the union of two schemas, which must be objects."""
    for side in (left, right):
        if not isinstance(side, dict):
            raise NotASchema(side)
        try:
            jsonschema_rs.meta.validate({"$schema": _DRAFT, **side})
        except (jsonschema_rs.ValidationError, ValueError) as error:
            raise NotASchema(str(error)) from error
    return _union(left, right)


_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def _union(left: Schema, right: Schema) -> Schema:
    if order(left) == order(right):
        return left
    if left is False:
        return right
    if right is False:
        return left
    ours: dict[str, Any] = {} if left is True else left
    theirs: dict[str, Any] = {} if right is True else right
    if not ours or not theirs:
        return {}
    out: dict[str, Any] = {}
    types = _types(ours) | _types(theirs)
    if "type" in ours and "type" in theirs:
        names = [t for t in _TYPES if t in types and not (t == "integer" and "number" in types)]
        out["type"] = names[0] if len(names) == 1 else names
    out |= _values_united(ours, theirs)
    for kind, keywords in _BY_TYPE.items():
        out |= _of_type(kind, keywords, ours, theirs)
    out |= _objects_united(ours, theirs)
    out |= _arrays_united(ours, theirs)
    for keyword in sorted((ours.keys() & theirs.keys()) - _KNOWN - _DEPENDENT):
        if ours[keyword] == theirs[keyword]:
            out[keyword] = ours[keyword]
    return out


def _types(schema: Mapping[str, Any]) -> set[str]:
    """Return the types that a schema permits."""
    said = schema.get("type", list(_TYPES))
    found = {said} if isinstance(said, str) else {*said}
    return found | {"integer"} if "number" in found else found


def _values_united(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Unite ``enum`` and ``const``, which list the values that are permitted."""

    def listed(schema: Mapping[str, Any]) -> list[Json] | None:
        if "const" in schema:
            return [schema["const"]]
        values: list[Json] | None = schema.get("enum")
        return values

    first, second = listed(ours), listed(theirs)
    if first is None or second is None:
        return {}
    by_order = {order(value): value for value in (*first, *second)}
    return {"enum": [by_order[at] for at in sorted(by_order)]}


def _equal(ours: Json, theirs: Json) -> Json:
    return ours if order(ours) == order(theirs) else ABSENT


def _format(ours: str, theirs: str) -> Json:
    if {ours, theirs} == {"integer", "number"}:
        return "number"
    return _equal(ours, theirs)


_Unite = Callable[[Any, Any], Json]

_BY_TYPE: Final[Mapping[str, Mapping[str, _Unite]]] = {
    "string": {
        "minLength": min,
        "maxLength": max,
        "pattern": _equal,
        "format": _format,
        "contentEncoding": _equal,
        "contentMediaType": _equal,
    },
    # An integer is a number, and what constrains numbers constrains it.
    "integer": {
        "minimum": min,
        "maximum": max,
        "exclusiveMinimum": min,
        "exclusiveMaximum": max,
        "multipleOf": _equal,
    },
    "array": {"minItems": min, "maxItems": max, "uniqueItems": _equal},
    "object": {"minProperties": min, "maxProperties": max},
}


def _of_type(
    kind: str,
    keywords: Mapping[str, _Unite],
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
) -> dict[str, Any]:
    out = {}
    for keyword, unite in keywords.items():
        first, second = _said(kind, keyword, ours, theirs), _said(kind, keyword, theirs, ours)
        if first is not ABSENT and second is not ABSENT:
            value = unite(first, second)
            if value is not ABSENT:
                out[keyword] = value
    return out


def _said(kind: str, keyword: str, mine: Mapping[str, Any], other: Mapping[str, Any]) -> Json:
    """Return what a side says by a keyword; if it has no such type, it says what the other says."""
    return mine.get(keyword, ABSENT) if kind in _types(mine) else other.get(keyword, ABSENT)


def _objects_united(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    mine = [schema for schema in (ours, theirs) if "object" in _types(schema)]
    if len(mine) < 2:
        return {name: s[name] for s in mine for name in _OBJECT_KEYWORDS if name in s}
    out: dict[str, Any] = {}
    required = sorted({*ours.get("required", ())} & {*theirs.get("required", ())})
    if required:
        out["required"] = required
    # A pattern takes properties out of the reach of additionalProperties, on its side only.
    if "patternProperties" in ours or "patternProperties" in theirs:
        return out
    beyond = [schema.get("additionalProperties", True) for schema in (ours, theirs)]
    properties = {}
    for name in sorted({*ours.get("properties", ())} | {*theirs.get("properties", ())}):
        first = ours.get("properties", {}).get(name, beyond[0])
        second = theirs.get("properties", {}).get(name, beyond[1])
        properties[name] = _union(first, second)
    if properties:
        out["properties"] = properties
    additional = _union(*beyond)
    if additional not in (True, {}):
        out["additionalProperties"] = additional
    return out


def _arrays_united(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    mine = [schema for schema in (ours, theirs) if "array" in _types(schema)]
    if len(mine) < 2:
        return {name: s[name] for s in mine for name in _ARRAY_KEYWORDS if name in s}
    out: dict[str, Any] = {}
    beyond = [schema.get("items", True) for schema in (ours, theirs)]
    prefixes = [schema.get("prefixItems", []) for schema in (ours, theirs)]
    longest = max(map(len, prefixes))
    prefix = [
        _union(*(p[at] if at < len(p) else rest for p, rest in zip(prefixes, beyond, strict=True)))
        for at in range(longest)
    ]
    if prefix:
        out["prefixItems"] = prefix
    items = _union(*beyond)
    if items not in (True, {}):
        out["items"] = items
    return out


_OBJECT_KEYWORDS: Final = ("required", "properties", "additionalProperties", "patternProperties")
_ARRAY_KEYWORDS: Final = ("items", "prefixItems")
_DEPENDENT: Final = frozenset(
    # What they mean depends on their neighbours, which we may have dropped.
    {"unevaluatedProperties", "unevaluatedItems", "contains", "minContains", "maxContains"}
    | {"if", "then", "else"}
)
_KNOWN: Final = frozenset(
    {"type", "enum", "const", *_OBJECT_KEYWORDS, *_ARRAY_KEYWORDS}
    | {keyword for keywords in _BY_TYPE.values() for keyword in keywords}
)
