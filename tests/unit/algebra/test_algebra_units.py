"""The refusals of the algebra, one by one; its laws are in ``tests/properties``."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import headwater.algebra
from headwater.algebra.description import Description, InvalidDescription, merged
from headwater.algebra.frontier import Frontier
from headwater.algebra.partitioned import (
    Cut,
    PartitionedOffset,
    PartitionRange,
    next_offset,
    source_frontier,
)
from headwater.algebra.zset import ZSet

MODULES = sorted(module.name for module in pkgutil.iter_modules(headwater.algebra.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    module = importlib.import_module(f"headwater.algebra.{name}")
    failed, tried = doctest.testmod(module)
    assert failed == 0
    assert tried > 0, "a module of the algebra shows its use by example"


def test_an_antichain_cannot_be_built_wrong() -> None:
    with pytest.raises(AssertionError, match="not an antichain"):
        Frontier((3, 5))


def test_a_closed_frontier_has_no_single_element() -> None:
    with pytest.raises(ValueError, match="unpack"):
        Frontier[int].closed().only()


def test_a_new_partition_needs_no_new_frontier() -> None:
    before = source_frontier({"orders-0": 12})
    arrived = PartitionedOffset.record("orders-1", 0)
    assert before.allows(arrived)
    assert before <= source_frontier({"orders-0": 12, "orders-1": 1})


def test_a_finished_partition_stays_finished() -> None:
    finished = source_frontier({0: 4, 1: 2}, finished=[0])
    assert next_offset(finished, 0) is None
    assert source_frontier({0: 9, 1: 2}) <= finished


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (Cut(3, 1), Cut(3, -1)),
        (Cut(3, 1), Cut(4, -1)),
        (Cut.END, Cut.START),
        (Cut("b", -1), Cut("a", 1)),
    ],
)
def test_a_range_holds_a_partition(lower: Cut, upper: Cut) -> None:
    assert PartitionRange.between(lower, upper) is None
    with pytest.raises(ValueError, match="no partition"):
        PartitionRange(lower, upper)


def test_between_two_names_there_may_be_another() -> None:
    assert str(PartitionRange.between(Cut("a", 1), Cut("b", -1))) == "(a, b)"


def test_offsets_and_cuts_are_checked() -> None:
    with pytest.raises(ValueError, match="negative"):
        PartitionedOffset.record(0, -1)
    with pytest.raises(ValueError, match="before"):
        Cut(0, 0)


def test_a_description_is_neither_inverted_nor_empty() -> None:
    with pytest.raises(InvalidDescription, match="inverted"):
        Description.of(5, 2)
    with pytest.raises(InvalidDescription, match="empty"):
        Description.of(5, 5)
    with pytest.raises(InvalidDescription, match="empty"):
        Description(Frontier.closed(), Frontier.closed(), Frontier.of(0))


def test_a_batch_with_closed_since_keeps_to_its_interval() -> None:
    description = Description(Frontier.of(2), Frontier.of(5), Frontier.closed())
    assert [time for time in range(9) if description.permits(time)] == [2, 3, 4]
    assert not description.readable_at(100)


def test_merging_refuses_gaps_and_nothing() -> None:
    with pytest.raises(InvalidDescription, match="not followed"):
        merged([Description.of(0, 2), Description.of(3, 4)], Frontier.of(0))
    with pytest.raises(InvalidDescription, match="nothing"):
        merged([], Frontier.of(0))


def test_rows_of_a_change_cannot_be_listed() -> None:
    with pytest.raises(AssertionError, match="missing"):
        (-ZSet.of("a")).rows()
