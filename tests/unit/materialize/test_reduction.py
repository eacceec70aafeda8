"""Reductions of the documents of a key, retractions, and where in a document they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.materialize.reduction.annotations import Annotator
from headwater.materialize.reduction.numbers import NotANumber, TooLarge, add, times
from headwater.materialize.reduction.reduce import Reduced, Strategies, combine, reduce_all
from headwater.materialize.reduction.strategy import (
    NAMES,
    CannotRetract,
    Maximize,
    Retraction,
    Sum,
    retraction,
)
from headwater.materialize.reduction.value import ABSENT, at_pointer

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
