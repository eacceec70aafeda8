"""The union of two JSON schemas permits what either permits."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.materialize.reduction.schemas import NotASchema, united

TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]
SMALL = st.integers(0, 3)
NAMES = st.sampled_from("ab")
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 4), st.floats(-2, 4), st.text("ab1", max_size=4)
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=5,
)


def _schemas(inner: Any) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES)
            | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
            "enum": st.lists(SCALARS, min_size=1, max_size=3),
            "const": SCALARS,
            "minLength": SMALL,
            "maxLength": SMALL,
            "pattern": st.sampled_from(["^a", "b$"]),
            "format": st.sampled_from(["integer", "number", "date"]),
            "minimum": SMALL,
            "maximum": SMALL,
            "exclusiveMinimum": SMALL,
            "exclusiveMaximum": SMALL,
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "minItems": SMALL,
            "maxItems": SMALL,
            "uniqueItems": st.booleans(),
            "minProperties": SMALL,
            "maxProperties": SMALL,
            "required": st.lists(NAMES, unique=True, max_size=2),
            "properties": st.dictionaries(NAMES, inner, max_size=2),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "c"]), inner, max_size=1),
            "unevaluatedProperties": st.booleans(),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "contains": inner,
            "minContains": SMALL,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": st.just({"type": "null"}),
            "if": inner,
            "then": inner,
            "title": st.sampled_from(["x", "y"]),
        },
    )


SCHEMAS: st.SearchStrategy[Any] = st.recursive(st.booleans() | st.just({}), _schemas, max_leaves=4)
OBJECT_SCHEMAS = _schemas(SCHEMAS)


def _permits(schema: Any, document: Any) -> bool:
    return jsonschema_rs.Draft202012Validator(schema).is_valid(document)


@given(OBJECT_SCHEMAS, OBJECT_SCHEMAS, st.lists(DOCUMENTS, min_size=1, max_size=6))
def test_what_either_permits_the_union_permits(a: Any, b: Any, documents: list[Any]) -> None:
    union = united(a, b)
    for document in documents:
        if _permits(a, document) or _permits(b, document):
            assert _permits(union, document), (union, document)


@pytest.mark.parametrize(
    ("a", "b", "document"),
    [
        # A pattern takes a property out of the reach of additionalProperties.
        (
            {"patternProperties": {"^a": {}}, "additionalProperties": False},
            {"additionalProperties": False},
            {"a": 1},
        ),
        # These two mean something together that they do not mean alone.
        (
            {"contains": {"type": "string"}, "minContains": 0},
            {"contains": {"type": "string"}, "minContains": 1},
            [],
        ),
        (
            {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
            {"allOf": [{"properties": {"b": {}}}], "unevaluatedProperties": False},
            {"a": 1},
        ),
        ({"type": "number", "minimum": 3}, {"type": "integer"}, 1),
        ({"type": "integer", "minimum": 3}, {"type": "number"}, 1),
        ({"maximum": 3}, {"exclusiveMaximum": 2}, 3),
        ({"prefixItems": [{"type": "null"}], "items": False}, {"items": {"type": "null"}}, [None]),
    ],
)
def test_keywords_that_hang_together(a: Any, b: Any, document: Any) -> None:
    assert _permits(a, document) or _permits(b, document)
    for union in (united(a, b), united(b, a)):
        assert _permits(union, document), union


@given(OBJECT_SCHEMAS)
def test_a_schema_is_its_own_union(schema: Any) -> None:
    assert united(schema, schema) == schema


@pytest.mark.parametrize(
    ("a", "b", "union"),
    [
        ({"type": "integer"}, {"type": "number"}, {"type": "number"}),
        ({"type": "string"}, {"type": "null"}, {"type": ["null", "string"]}),
        (
            {"type": "string", "maxLength": 5},
            {"type": "integer", "minimum": 0},
            {"type": ["integer", "string"], "maxLength": 5, "minimum": 0},
        ),
        ({"type": "string", "format": "integer"}, {"type": "string", "format": "number"}, None),
        ({"const": 1}, {"enum": [2, 1]}, {"enum": [1, 2]}),
        ({"const": 1}, {"const": True}, {"enum": [True, 1]}),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "required": ["a"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "null"}},
                "required": ["a", "b"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"a": {"type": ["integer", "string"]}, "b": {"type": "null"}},
                "required": ["a"],
                "additionalProperties": False,
            },
        ),
        (
            {"type": "array", "items": {"type": "integer"}},
            {"type": "array", "items": {"type": "null"}, "prefixItems": [{"type": "string"}]},
            {
                "type": "array",
                "prefixItems": [{"type": ["integer", "string"]}],
                "items": {"type": ["null", "integer"]},
            },
        ),
        ({"type": "string"}, {}, {}),
    ],
)
def test_unions_are_no_wider_than_they_must_be(a: Any, b: Any, union: Any) -> None:
    expected = union if union is not None else {"type": "string", "format": "number"}
    assert united(a, b) == expected
    assert united(b, a) == expected


@pytest.mark.parametrize("wrong", [True, None, [], {"type": "foo"}, {"minLength": -1}, {"$ref": 1}])
def test_what_is_no_schema(wrong: Any) -> None:
    pairs: list[tuple[Any, Any]] = [({}, wrong), (wrong, {})]
    for pair in pairs:
        with pytest.raises(NotASchema):
            united(*pair)
