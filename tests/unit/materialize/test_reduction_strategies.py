"""Reductions: each strategy by cases, and the laws that let a transaction combine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.materialize.reduction import errors
from headwater.materialize.reduction.reduce import Strategies, reduce
from headwater.materialize.reduction.strategy import (
    Append,
    FirstWriteWins,
    JsonSchemaMerge,
    LastWriteWins,
    Maximize,
    Merge,
    Minimize,
    Set,
    Sum,
)
from headwater.materialize.reduction.value import order

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
