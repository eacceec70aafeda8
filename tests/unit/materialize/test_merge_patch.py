"""Merge patches: the RFC's examples, as reductions, and a driver's state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.materialize.protocol.specs import ConnectorState
from headwater.materialize.reduction.annotations import Annotator
from headwater.materialize.reduction.merge_patch import merge_patch, updated_state
from headwater.materialize.reduction.reduce import reduce

PATCH_SCHEMA: dict[str, Any] = {
    "$defs": {
        "patch": {
            "if": {"type": "object"},
            "then": {
                "reduce": {"strategy": "merge"},
                "additionalProperties": {
                    "if": {"type": "null"},
                    "then": {"reduce": {"strategy": "lastWriteWins", "delete": True}},
                    "else": {"$ref": "#/$defs/patch"},
                },
            },
        }
    },
    "$ref": "#/$defs/patch",
}
PATCHES = st.recursive(
    st.none() | st.integers(0, 3) | st.lists(st.integers(0, 1), max_size=1),
    lambda inner: st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)
OBJECTS = st.dictionaries(st.sampled_from("ab"), PATCHES, max_size=2)


@given(PATCHES, OBJECTS)
def test_a_merge_patch_is_a_reduction(state: Any, patch: Any) -> None:
    state = merge_patch(None, state)  # A state holds no nulls in objects.
    by_reduction = reduce(state, patch, Annotator(PATCH_SCHEMA).strategies(patch), full=True)
    assert merge_patch(state, patch) == by_reduction.document


RFC_EXAMPLES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "expected"), RFC_EXAMPLES)
def test_the_examples_of_rfc_7396(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


def test_the_state_of_a_driver() -> None:
    updates: list[tuple[bytes, ConnectorState | None, bytes]] = [
        (b'{"a":1}', None, b'{"a":1}'),
        (b'{"a":1}', ConnectorState(), b'{"a":1}'),
        (b'{"a":1}', ConnectorState(b'{"b":2}'), b'{"b":2}'),
        (b'{"a":1}', ConnectorState(b'{"b":2}', merge_patch=True), b'{"a":1,"b":2}'),
        (b"", ConnectorState(b'{"b":{"c":null}}', merge_patch=True), b'{"b":{}}'),
    ]
    for state, update, expected in updates:
        assert updated_state(state, update) == expected
