"""Which strategies a schema gives to a document, and the mistakes it may have."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.materialize.reduction.annotations import (
    Annotator,
    ConflictingStrategies,
    InvalidDocument,
    InvalidSchema,
)
from headwater.materialize.reduction.strategy import (
    NAMES,
    Append,
    Merge,
    Minimize,
    Strategy,
    Sum,
    UnknownStrategy,
    parse,
)


def test_a_schema_gives_strategies_by_document() -> None:
    annotator = Annotator(
        {
            "$defs": {"total": {"type": "number", "reduce": {"strategy": "sum"}}},
            "reduce": {"strategy": "merge"},
            "properties": {"n": {"$ref": "#/$defs/total"}, "a~/b": {"$ref": "#/$defs/total"}},
            "oneOf": [
                {"required": ["x"], "properties": {"x": {"reduce": {"strategy": "append"}}}},
                {"required": ["y"], "properties": {"y": {"reduce": {"strategy": "minimize"}}}},
            ],
        }
    )
    merge: Strategy = Merge()
    assert annotator.strategies({"x": [], "n": 1}) == {"": merge, "/n": Sum(), "/x": Append()}
    assert annotator.strategies({"y": 1, "a~/b": 2}) == {
        "": merge,
        "/a~0~1b": Sum(),
        "/y": Minimize(),
    }
    with pytest.raises(InvalidDocument, match="refuses"):
        annotator.strategies({"x": [], "n": "no number"})


def test_two_strategies_for_one_location() -> None:
    same = {"reduce": {"strategy": "sum"}}
    other = {"reduce": {"strategy": "minimize"}}
    assert Annotator({"allOf": [same, same]}).strategies(1) == {"": Sum()}
    with pytest.raises(ConflictingStrategies):
        Annotator({"allOf": [same, other]}).strategies(1)
    # The second branch refuses, so its annotation does not count.
    anyhow = Annotator({"anyOf": [same, {**other, "type": "string"}]})
    assert anyhow.strategies(1) == {"": Sum()}


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        ({"strategy": "multiply"}, "names no strategy"),
        ({"strategy": "sum", "key": []}, "unknown property"),
        ({"strategy": "merge", "key": "/a"}, "no list of JSON pointers"),
        ({"strategy": "merge", "key": ["a"]}, "no list of JSON pointers"),
        ({"strategy": "merge", "delete": 1}, "neither true nor false"),
        ({}, "has no strategy"),
        ("sum", "has no strategy"),
    ],
)
def test_annotations_that_are_none(annotation: Any, reason: str) -> None:
    with pytest.raises(UnknownStrategy, match=reason):
        parse(annotation)


def test_a_mistake_in_a_schema_is_found_before_the_first_document() -> None:
    with pytest.raises(UnknownStrategy):
        Annotator({"properties": {"a": {"items": [{"reduce": {"strategy": "multiply"}}]}}})
    with pytest.raises(InvalidSchema):
        Annotator({"type": "foo"})


def test_every_strategy_has_a_name() -> None:
    for name, kind in NAMES.items():
        assert parse({"strategy": name}) == kind()
