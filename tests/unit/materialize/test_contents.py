"""What the messages of a transaction may hold."""

from __future__ import annotations

import pytest

from headwater.materialize.protocol.contents import Contents, WrongContents
from headwater.materialize.protocol.messages import Load, Loaded, Message, StartCommit, Store

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
