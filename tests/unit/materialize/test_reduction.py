"""Reductions: each strategy by cases, and the laws that let a transaction combine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.materialize.protocol.specs import ConnectorState
from headwater.materialize.reduction import errors
from headwater.materialize.reduction.annotations import (
    Annotator,
    ConflictingStrategies,
    InvalidDocument,
    InvalidSchema,
)
from headwater.materialize.reduction.merge_patch import merge_patch, updated_state
from headwater.materialize.reduction.numbers import NotANumber, TooLarge, add, times
from headwater.materialize.reduction.reduce import (
    Reduced,
    Strategies,
    combine,
    reduce,
    reduce_all,
)
from headwater.materialize.reduction.strategy import (
    NAMES,
    Append,
    CannotRetract,
    FirstWriteWins,
    JsonSchemaMerge,
    LastWriteWins,
    Maximize,
    Merge,
    Minimize,
    Retraction,
    Set,
    Strategy,
    Sum,
    UnknownStrategy,
    parse,
    retraction,
)
from headwater.materialize.reduction.value import ABSENT, at_pointer, order

FULL, PARTIAL = True, False


def _at(strategies: Strategies, left: Any, right: Any, full: bool) -> Any:
    return reduce(left, right, strategies, full=full).document


# Each strategy, by cases: (strategies, left, right, full result, partial result).

SAME = object()
CASES: list[tuple[str, Strategies, Any, Any, Any, Any]] = [
    ("default", {}, {"a": 1}, {"b": 2}, {"b": 2}, SAME),
    ("append", {"": Append()}, [1], [2, 3], [1, 2, 3], SAME),
    ("append to null", {"": Append()}, None, [2], None, SAME),
    ("append nothing", {"": Append()}, [1], [], [1], SAME),
    ("append to absent", {"": Merge(), "/a": Append()}, {}, {"a": [1]}, {"a": [1]}, SAME),
    ("append wrong", {"": Append()}, [1], "x", errors.AppendWrongType, SAME),
    ("append to wrong", {"": Append()}, "x", [1], errors.AppendWrongType, SAME),
    ("append null wrong", {"": Append()}, None, 1, errors.AppendWrongType, SAME),
    ("first", {"": FirstWriteWins()}, 1, 2, 1, SAME),
    ("first is null", {"": FirstWriteWins()}, None, 2, None, SAME),
    ("first absent", {"": Merge(), "/a": FirstWriteWins()}, {}, {"a": 1}, {"a": 1}, SAME),
    ("last", {"": LastWriteWins()}, 1, None, None, SAME),
    (
        "delete below",
        {"": Merge(), "/a": LastWriteWins(delete=True)},
        {"a": 1, "b": 2},
        {"a": 9},
        {"b": 2},
        {"a": 9, "b": 2},
    ),
    (
        "delete what is absent",
        {"": Merge(), "/a": LastWriteWins(delete=True)},
        {"b": 2},
        {"a": 9},
        {"b": 2},
        {"a": 9, "b": 2},
    ),
    (
        "merge with delete below",
        {"": Merge(), "/a": Merge(delete=True)},
        {"a": {"x": 1}},
        {"a": {"y": 1}},
        {},
        {"a": {"x": 1, "y": 1}},
    ),
    (
        "not associative",
        {"": LastWriteWins(associative=False)},
        1,
        2,
        2,
        errors.NotAssociative,
    ),
    ("not associative, equal", {"": LastWriteWins(associative=False)}, [1], [1], [1], SAME),
    ("minimize", {"": Minimize()}, 3, 2.5, 2.5, SAME),
    ("minimize keeps", {"": Minimize()}, 2, 3, 2, SAME),
    ("minimize across types", {"": Minimize()}, "a", 7, 7, SAME),
    ("minimize takes the right of equals", {"": Minimize()}, 1, 1.0, 1.0, SAME),
    ("maximize", {"": Maximize()}, 3, "x", "x", SAME),
    ("maximize arrays", {"": Maximize()}, [1, 2], [1, 2, 0], [1, 2, 0], SAME),
    (
        "minimize by key",
        {"": Minimize(("/t",))},
        {"t": 2, "v": "old"},
        {"t": 1, "v": "new"},
        {"t": 1, "v": "new"},
        SAME,
    ),
    (
        "maximize by key keeps",
        {"": Maximize(("/t",))},
        {"t": 2, "v": "old"},
        {"t": 1, "v": "new"},
        {"t": 2, "v": "old"},
        SAME,
    ),
    (
        "equal by key are merged",
        {"": Maximize(("/t",)), "/n": Sum()},
        {"t": 2, "n": 1, "l": 0},
        {"t": 2, "n": 5, "r": 0},
        {"t": 2, "n": 6, "l": 0, "r": 0},
        SAME,
    ),
    (
        "a missing key is least",
        {"": Minimize(("/t",))},
        {"t": None},
        {"v": 1},
        {"v": 1},
        SAME,
    ),
    (
        "the winner by key is processed",
        {"": Minimize(("/t",)), "/gone": LastWriteWins(delete=True)},
        {"t": 2},
        {"t": 1, "gone": 0},
        {"t": 1},
        {"t": 1, "gone": 0},
    ),
    ("by key, no object", {"": Minimize(("",))}, 2, 1, errors.MergeWrongType, SAME),
    (
        "merge objects",
        {"": Merge(), "/s": Sum(), "/o": Merge()},
        {"s": 1, "o": {"x": 1}, "l": 1},
        {"s": 2, "o": {"y": 2}, "r": 1},
        {"s": 3, "o": {"x": 1, "y": 2}, "l": 1, "r": 1},
        SAME,
    ),
    (
        "merge arrays by index",
        {"": Merge(), "/0": Sum(), "/2": Sum()},
        [1, 2],
        [10, 20, 30],
        [11, 20, 30],
        SAME,
    ),
    ("merge keeps a longer left", {"": Merge()}, [1, 2, 3], [9], [9, 2, 3], SAME),
    (
        "merge by key",
        {"": Merge(("/k",)), "/0": Merge(), "/0/n": Sum(), "/1": Merge(), "/1/n": Sum()},
        [{"k": 1, "n": 1}, {"k": 3, "n": 3}],
        [{"k": 2, "n": 20}, {"k": 3, "n": 30}],
        [{"k": 1, "n": 1}, {"k": 2, "n": 20}, {"k": 3, "n": 33}],
        SAME,
    ),
    ("merge by natural order", {"": Merge(("",))}, [1, 3], [2, 3, 4], [1, 2, 3, 4], SAME),
    ("merge unsorted", {"": Merge(("",))}, [1], [3, 2], errors.NotSorted, SAME),
    ("merge doubled", {"": Merge(("",))}, [1, 1], [2], errors.NotSorted, SAME),
    ("merge null", {"": Merge()}, None, {"a": 1}, {"a": 1}, errors.NotAssociative),
    ("merge other type", {"": Merge()}, [1], {"a": 1}, {"a": 1}, errors.NotAssociative),
    (
        "merge other type processes the right",
        {"": Merge(), "/a": LastWriteWins(delete=True), "/s": Sum()},
        7,
        {"a": 1, "s": 2},
        {"s": 2},
        errors.NotAssociative,
    ),
    ("merge of a scalar", {"": Merge()}, {}, 1, errors.MergeWrongType, SAME),
    (
        "deleted items go",
        {"": Merge(("",)), "/0": LastWriteWins(delete=True)},
        [1, 2],
        [2],
        [1],
        [1, 2],
    ),
    ("sum", {"": Sum()}, 1, 2, 3, SAME),
    ("sum of floats", {"": Sum()}, 1, 0.5, 1.5, SAME),
    ("sum begins at zero", {"": Merge(), "/n": Sum()}, {}, {"n": "1.50"}, {"n": "1.50"}, SAME),
    ("sum of text", {"": Sum()}, "0.1", "0.2", "0.3", SAME),
    ("sum coerces to text", {"": Sum()}, 2**64 - 1, "32.5", "18446744073709551647.5", SAME),
    ("sum is text", {"": Sum()}, "9" * 30, "1", "1" + "0" * 30, SAME),
    ("sum beyond u64", {"": Sum()}, 2**64 - 1, 1, errors.SumOverflow, SAME),
    ("sum below i64", {"": Sum()}, -(2**63), -1, errors.SumOverflow, SAME),
    ("sum of huge floats", {"": Sum()}, 1e308, 1e308, errors.SumOverflow, SAME),
    ("sum of null", {"": Sum()}, None, 1, errors.SumWrongType, SAME),
    ("sum of true", {"": Sum()}, 1, True, errors.SumWrongType, SAME),
    ("sum of words", {"": Sum()}, 1, "one", errors.SumWrongType, SAME),
    ("sum of an infinite word", {"": Sum()}, 1, "Infinity", errors.SumWrongType, SAME),
    (
        "set adds",
        {"": Set()},
        {"add": [1, 3]},
        {"add": [2, 3]},
        {"add": [1, 2, 3]},
        SAME,
    ),
    (
        "set removes",
        {"": Set()},
        {"add": [1, 2, 3]},
        {"remove": [2], "add": [4]},
        {"add": [1, 3, 4]},
        {"add": [1, 3, 4], "remove": [2]},
    ),
    (
        "set intersects",
        {"": Set()},
        {"add": [1, 2, 3]},
        {"intersect": [2, 9], "add": [4]},
        {"add": [2, 4]},
        {"add": [2, 4], "intersect": [2, 9]},
    ),
    (
        "intersect then intersect",
        {"": Set()},
        {"intersect": [1, 2], "add": [3]},
        {"intersect": [2, 3, 4]},
        {"add": [3]},
        {"add": [3], "intersect": [2]},
    ),
    (
        "intersect then remove",
        {"": Set()},
        {"intersect": [1, 2], "add": [3, 5]},
        {"remove": [2, 3]},
        {"add": [5]},
        {"add": [5], "intersect": [1]},
    ),
    (
        "remove then intersect",
        {"": Set()},
        {"remove": [1], "add": [5]},
        {"intersect": [1, 2, 5]},
        {"add": [5]},
        {"add": [5], "intersect": [2, 5]},
    ),
    (
        "set of objects reduces members",
        {"": Set(), "/add/a": Sum()},
        {"add": {"a": 1, "b": 1}},
        {"add": {"a": 2}, "remove": {"b": 0}},
        {"add": {"a": 3}},
        {"add": {"a": 3}, "remove": {"b": 0}},
    ),
    (
        "set of keyed members",
        {"": Set(("/k",)), "/add/0": Merge(), "/add/0/n": Sum()},
        {"add": [{"k": 1, "n": 1}, {"k": 2, "n": 2}]},
        {"add": [{"k": 2, "n": 5}]},
        {"add": [{"k": 1, "n": 1}, {"k": 2, "n": 7}]},
        SAME,
    ),
    ("set of nothing", {"": Set()}, {}, {"remove": [1]}, {}, {"remove": [1]}),
    ("set mixes", {"": Set()}, {"add": [1]}, {"add": {"a": 1}}, errors.SetWrongType, SAME),
    ("set of both", {"": Set()}, {}, {"remove": [], "intersect": []}, errors.SetWrongType, SAME),
    ("set of other", {"": Set()}, {}, {"subtract": []}, errors.SetWrongType, SAME),
    ("set of scalars", {"": Set()}, {}, {"add": 1}, errors.SetWrongType, SAME),
    ("set is no object", {"": Set()}, [], {"add": [1]}, errors.SetWrongType, SAME),
    ("set unsorted", {"": Set()}, {}, {"add": [2, 1]}, errors.NotSorted, SAME),
    (
        "set absent",
        {"": Merge(), "/s": Set()},
        {},
        {"s": {"add": [1], "remove": [2]}},
        {"s": {"add": [1]}},
        {"s": {"add": [1], "remove": [2]}},
    ),
    (
        "schemas",
        {"": JsonSchemaMerge()},
        {"type": "string", "maxLength": 5, "minLength": 5},
        {"type": "string", "maxLength": 10, "minLength": 8},
        {"type": "string", "maxLength": 10, "minLength": 5},
        SAME,
    ),
    ("no schema", {"": JsonSchemaMerge()}, {}, "x", errors.JsonSchemaMergeWrongType, SAME),
    (
        "no valid schema",
        {"": JsonSchemaMerge()},
        {},
        {"type": "foo"},
        errors.JsonSchemaMergeWrongType,
        SAME,
    ),
]


@pytest.mark.parametrize(
    ("strategies", "left", "right", "full", "partial"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_strategies(strategies: Strategies, left: Any, right: Any, full: Any, partial: Any) -> None:
    for how, expected in ((FULL, full), (PARTIAL, full if partial is SAME else partial)):
        if isinstance(expected, type):
            with pytest.raises(expected) as failed:
                _at(strategies, left, right, how)
            assert isinstance(failed.value, errors.CannotReduce)
            assert failed.value.reason in str(failed.value)
        else:
            result = _at(strategies, left, right, how)
            assert order(result) == order(expected)
            assert type(result) is type(expected)


def test_an_error_names_location_and_values() -> None:
    with pytest.raises(errors.SumWrongType, match=r"at /a~1b/0: .*left 'x', right 2") as failed:
        reduce(
            {"a/b": ["x"]},
            {"a/b": [2]},
            {"": Merge(), "/a~1b": Merge(), "/a~1b/0": Sum()},
            full=True,
        )
    assert failed.value.pointer == "/a~1b/0"


# The laws.

SMALL = st.integers(-3, 3)
SORTED = st.lists(SMALL, unique=True, max_size=4).map(sorted)
NAMED = st.dictionaries(st.sampled_from("abc"), SMALL, max_size=3)
SET_UPDATES = st.one_of(
    st.fixed_dictionaries({}, optional={"add": SORTED, "remove": SORTED}),
    st.fixed_dictionaries({"intersect": SORTED}, optional={"add": SORTED}),
)
LAWFUL: list[tuple[str, Strategies, Any, Any]] = [
    ("append", {"": Append()}, st.lists(SMALL, max_size=3), st.none() | st.lists(SMALL)),
    ("first", {"": FirstWriteWins()}, SMALL, SMALL),
    ("last", {"": LastWriteWins()}, SMALL, SMALL),
    ("minimize", {"": Minimize()}, SMALL | st.text(max_size=1), SMALL),
    ("maximize", {"": Maximize()}, SMALL | st.none(), SMALL),
    ("sum", {"": Sum()}, SMALL, SMALL),
    ("sum of text", {"": Sum()}, SMALL | SMALL.map(str), SMALL),
    (
        "merge",
        {"": Merge(), "/a": Sum(), "/b": Maximize(), "/c": FirstWriteWins()},
        NAMED,
        NAMED,
    ),
    ("merge by key", {"": Merge(("",))}, SORTED, SORTED),
    ("merge by index", {"": Merge(), "/0": Sum()}, st.lists(SMALL, max_size=3), st.lists(SMALL)),
    ("set", {"": Set()}, SET_UPDATES, st.fixed_dictionaries({"add": SORTED})),
    (
        "least by key",
        {"": Minimize(("/a",)), "/a": LastWriteWins(), "/b": Sum()},
        st.fixed_dictionaries({"a": SMALL, "b": SMALL}),
        st.fixed_dictionaries({"a": SMALL, "b": SMALL}),
    ),
]


@pytest.mark.parametrize(
    ("strategies", "updates", "bases"), [law[1:] for law in LAWFUL], ids=[law[0] for law in LAWFUL]
)
@given(data=st.data())
def test_combining_first_gives_the_same(
    strategies: Strategies, updates: Any, bases: Any, data: st.DataObject
) -> None:
    base, a, b, c = data.draw(st.tuples(bases, updates, updates, updates))
    one_by_one = _at(strategies, _at(strategies, base, a, FULL), b, FULL)
    combined = _at(strategies, base, _at(strategies, a, b, PARTIAL), FULL)
    assert order(one_by_one) == order(combined)
    left = _at(strategies, _at(strategies, a, b, PARTIAL), c, PARTIAL)
    right = _at(strategies, a, _at(strategies, b, c, PARTIAL), PARTIAL)
    assert order(left) == order(right)


@given(st.lists(SET_UPDATES, max_size=4), SORTED)
def test_sets_are_pythons_sets(updates: list[Any], base: list[int]) -> None:
    model = {*base}
    document: Any = {"add": base}
    for update in updates:
        if "intersect" in update:
            model &= {*update["intersect"]}
        model -= {*update.get("remove", ())}
        model |= {*update.get("add", ())}
        document = _at({"": Set()}, document, update, FULL)
    assert document.get("add", []) == sorted(model)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=2),
    max_leaves=6,
)


@given(VALUES, VALUES, VALUES)
def test_values_have_one_total_order(a: Any, b: Any, c: Any) -> None:
    assert (order(a) < order(b)) + (order(b) < order(a)) + (order(a) == order(b)) == 1
    if order(a) <= order(b) <= order(c):
        assert order(a) <= order(c)


# Documents of a key.


def test_the_example_of_the_protocol() -> None:
    """Document 000: -1, 3, 2 and then 6, -7, -1 are 2 in full, and -2 as a delta."""

    def total(_: Any) -> Strategies:
        return {"": Sum()}

    first = reduce_all(ABSENT, [-1, 3, 2], total)
    assert first == Reduced(4)
    assert reduce_all(first.document, [6, -7, -1], total) == Reduced(2)
    assert combine([-1, 3, 2], total) == (4,)
    assert combine([6, -7, -1], total) == (-2,)


DELETING = {
    "if": {"properties": {"_meta": {"properties": {"op": {"const": "d"}}, "required": ["op"]}}},
    "then": {"reduce": {"strategy": "lastWriteWins", "delete": True}},
    "else": {"reduce": {"strategy": "merge"}},
    "required": ["_meta"],
    "properties": {"_meta": {"reduce": {"strategy": "lastWriteWins"}}},
}


def test_deletion_is_an_outcome() -> None:
    strategies = Annotator(DELETING).strategies
    create, delete = {"_meta": {"op": "c"}, "a": 1}, {"_meta": {"op": "d"}}
    update = {"_meta": {"op": "u"}, "b": 2}
    assert reduce_all(ABSENT, [create, update], strategies) == Reduced({**create, **update})
    assert reduce_all(ABSENT, [create, delete], strategies) == Reduced(delete, deleted=True)
    assert reduce_all(create, [delete], strategies) == Reduced(delete, deleted=True)
    # A lone tombstone reduces into nothing, and so deletes nothing.
    assert reduce_all(ABSENT, [delete], strategies) == Reduced(delete)
    # What comes after a deletion begins anew: nothing of the old document shines through.
    assert reduce_all(create, [delete, update], strategies) == Reduced(update)
    with pytest.raises(ValueError, match="nothing"):
        reduce_all(ABSENT, [], strategies)


def test_what_cannot_be_combined_is_kept_apart() -> None:
    patch = {
        "if": {"type": "object"},
        "then": {"reduce": {"strategy": "merge"}},
        "else": {"reduce": {"strategy": "lastWriteWins"}},
    }
    strategies = Annotator(patch).strategies
    assert combine([None, {"a": 1}, {"b": 2}], strategies) == (None, {"a": 1, "b": 2})
    assert combine([None, {"a": 1}, None], strategies) == (None,)
    assert combine([], strategies) == ()


# Annotations.


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


# Retractions.


def test_which_strategies_absorb_retractions() -> None:
    absorbed = {name: retraction(kind()) for name, kind in NAMES.items()}
    assert absorbed.pop("sum") is Retraction.SUBTRACTED
    assert absorbed.pop("lastWriteWins") is Retraction.REPLACED
    assert {*absorbed.values()} == {Retraction.REFUSED}
    message = str(CannotRetract("best", Maximize()))
    assert "'best'" in message
    assert "maximize" in message
    assert "view" in message


NUMBERS = st.integers(-100, 100) | st.decimals(-100, 100, places=2).map(str)


@given(st.lists(st.tuples(NUMBERS, st.integers(-3, 3)), max_size=6), NUMBERS, st.integers(-3, 3))
def test_a_sum_forgets_what_is_taken_away(rows: Any, value: Any, diff: int) -> None:
    total: Any = 0
    for number, count in rows:
        total = add(total, times(number, count))
    there_and_back = add(add(total, times(value, diff)), times(value, -diff))
    assert add(there_and_back, times(str(total), -1)) in (0, "0", "0.0", "0.00")


def test_numbers_that_cannot_be_taken() -> None:
    wrong: list[Any] = [None, True, [], "1e", "", "1_0", "٣", float("nan")]
    for value in wrong:
        with pytest.raises(NotANumber):
            times(value, 1)
    for large in ("1e99999", "1" * 10_001):
        with pytest.raises(TooLarge):
            add(large, "0.1")
    with pytest.raises(TooLarge):
        times(1e308, 10)


# Merge patches.

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


def test_pointers() -> None:
    document = {"": {"~": [5, {"/": 6}]}, "01": 7}
    for pointer, expected in (
        ("", document),
        ("//~0/0", 5),
        ("//~0/1/~1", 6),
        ("/01", 7),
        ("//~0/00", ABSENT),
        ("//~0/-", ABSENT),
        ("//~0/2", ABSENT),
        ("/x/y", ABSENT),
        ("/01/0", ABSENT),
    ):
        assert at_pointer(document, pointer) == expected
