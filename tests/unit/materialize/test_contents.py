"""What the messages of a transaction may hold."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.materialize.protocol.contents import Contents, WrongContents
from headwater.materialize.protocol.messages import (
    Load,
    Loaded,
    LoadedMany,
    LoadMany,
    Message,
    StartCommit,
    Store,
    StoreMany,
)

STANDARD, DELTA = 0, 1


def _check(*messages: Message) -> None:
    contents = Contents([False, True])
    for message in messages:
        contents.check(message)


def test_a_transaction_in_order_and_the_next() -> None:
    one = (
        Load(STANDARD, key_packed=b"b"),
        Load(STANDARD, key_packed=b"a"),
        Loaded(STANDARD, b"{}"),
        Loaded(STANDARD, b"{}"),
        Store(STANDARD, key_packed=b"a"),
        Store(STANDARD, key_packed=b"b"),
        Store(DELTA, key_packed=b"a"),
        Store(DELTA, key_packed=b"a"),
        Store(DELTA, key_packed=b"c"),
        StartCommit(),
    )
    _check(*one, *one)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([Load(2, key_packed=b"a")], "there are 2"),
        ([Loaded(7)], "there are 2"),
        ([Load(DELTA, key_packed=b"a")], "delta mode"),
        ([Load(0, key_packed=b"a"), Load(0, key_packed=b"a")], "loaded twice"),
        ([Load(0, key_json=b"[1]"), Load(0, key_json=b"[1]")], "loaded twice"),
        ([Loaded(0)], "more documents"),
        ([Load(0, key_packed=b"a"), Loaded(0), Loaded(0)], "more documents"),
        ([Store(0, key_packed=b"b"), Store(0, key_packed=b"a")], "do not ascend"),
        ([Store(1, key_packed=b"a"), Store(0, key_packed=b"b")], "do not ascend"),
        ([Store(0, key_packed=b"a"), Store(0, key_packed=b"a")], "stored twice"),
    ],
)
def test_what_a_transaction_cannot_hold(messages: list[Message], reason: str) -> None:
    with pytest.raises(WrongContents, match=reason):
        _check(*messages)


def test_keys_as_json_alone_are_not_ordered() -> None:
    _check(Store(0, key_json=b"[2]"), Store(0, key_json=b"[1]"))


def test_keys_need_not_be_told_apart() -> None:
    contents = Contents([False], distinct_keys=False)
    contents.check(Load(0, key_packed=b"a"))
    contents.check(Load(0, key_packed=b"a"))


def _many(binding: int, *keys: bytes) -> StoreMany:
    flags = pa.array([False] * len(keys), pa.bool_())
    return StoreMany(
        binding, pa.array(keys, pa.large_binary()), pa.table({"k": keys}), flags, flags
    )


def test_runs_are_as_many_messages() -> None:
    keys = pa.array([b"a", b"b"], pa.large_binary())
    loaded = LoadedMany(0, pa.table({"k": [1, 2]}))
    _check(LoadMany(0, keys), loaded, _many(0, b"a", b"b"), _many(0, b"c"), _many(1, b"a", b"a"))
    wrong: list[tuple[list[Message], str]] = [
        ([LoadMany(1, keys)], "delta mode"),
        ([LoadMany(0, keys), Load(0, key_packed=b"b")], "loaded twice"),
        ([Load(0, key_packed=b"b"), loaded], "more documents"),
        ([_many(0, b"b", b"a")], "do not ascend"),
        ([_many(0, b"a", b"a")], "do not ascend"),
        ([_many(0, b"a", b"b"), _many(0, b"a")], "do not ascend"),
        ([_many(0, b"a", b"b"), _many(0, b"b")], "stored twice"),
        ([_many(0)], "no documents"),
    ]
    for messages, reason in wrong:
        with pytest.raises(WrongContents, match=reason):
            _check(*messages)
