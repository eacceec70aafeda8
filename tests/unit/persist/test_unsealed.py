"""Unsealed writes: a sequence that is found by token, the same however it came about."""

from __future__ import annotations

import pickle
from random import Random

import msgspec
import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId, GlobalId
from headwater.persist import evolution
from headwater.persist.batch import TIME_LIMIT, Inline, Part, Unsealed
from headwater.persist.changes import Sealed, Written
from headwater.persist.commands import CreateOrLoad
from headwater.persist.decide import decide
from headwater.persist.state import State, apply_change, violations
from headwater.persist.unsealed import UnsealedWrites, dec_hook, enc_hook

SCHEMA = evolution.to_bytes(pa.schema([pa.field("k", pa.int64())]))
T = GlobalId(1)


def part(data: str, first: int, last: int) -> Part:
    return Part(Inline(data.encode()), "inline", 0, False, 1, 1, first, last)


def write(token: str, first: int, last: int | None = None) -> Unsealed:
    return Unsealed(BatchId(token), (part(token, first, first if last is None else last),))


@pytest.mark.parametrize("seed", range(10))
def test_one_by_one_or_at_once_in_the_order_in_which_they_came(seed: int) -> None:
    print("seed", seed)
    random = Random(seed)
    writes = [write(f"{random.random()}", random.randint(5, 50)) for _ in range(100)]
    grown = UnsealedWrites()
    for number, each in enumerate(writes):
        assert each.token not in grown
        before, grown = grown, grown.add(each)
        assert (len(before), len(grown)) == (number, number + 1)
        assert each.token in grown
        assert each.token not in before
    assert grown == UnsealedWrites(writes)
    assert hash(grown) == hash(UnsealedWrites(writes))
    assert list(grown) == writes
    assert grown.time_min == min(each.time_min for each in writes)
    assert grown != UnsealedWrites(reversed(writes)), "the order counts"
    assert pickle.loads(pickle.dumps(grown)) == grown
    data = msgspec.msgpack.encode(grown, enc_hook=enc_hook)
    assert data == msgspec.msgpack.encode(writes), "the bytes of a list"
    assert msgspec.msgpack.decode(data, type=UnsealedWrites, dec_hook=dec_hook) == grown


def test_none() -> None:
    assert not UnsealedWrites()
    assert list(UnsealedWrites()) == []
    assert UnsealedWrites().time_min == TIME_LIMIT


def test_two_with_one_token_are_both_kept() -> None:
    first, second = write("a", 7), write("a", 5)
    both = UnsealedWrites([first]).add(write("b", 9)).add(second)
    assert both == UnsealedWrites([first, write("b", 9), second])
    assert [each.parts for each in both] == [(*first.parts, *second.parts), write("b", 9).parts]
    assert both.time_min == 5


def test_a_seal_takes_what_is_before_it_and_leaves_the_rest_in_its_order() -> None:
    state = State()
    for change in decide(state, CreateOrLoad("t", SCHEMA), 0).changes:
        state = apply_change(state, change)
    for each in (write("a", 3), write("b", 9, 12), write("c", 20), write("d", 5)):
        state = apply_change(state, Written(T, each))
    unsealed = state.collections[T].unsealed
    # One that takes nothing leaves them as they are: it does not even look at each.
    state = apply_change(state, Sealed(T, Frontier.of(3)))
    assert state.collections[T].unsealed is unsealed
    assert state.collections[T].batches == ()
    state = apply_change(state, Sealed(T, Frontier.of(10)))
    (batch,) = state.collections[T].batches
    assert [taken.time_min for taken in batch.parts] == [3, 9, 5]
    left = state.collections[T].unsealed
    assert [each.token for each in left] == ["b", "c"]
    assert left.time_min == 10
    state = apply_change(state, Written(T, write("e", 11)))
    assert [each.token for each in state.collections[T].unsealed] == ["b", "c", "e"]
    assert list(violations(state)) == []
