"""Who owns a location: the second is told who the first is, the fenced one by whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.base.ids import RoleName
from headwater.persist.commands import Done
from headwater.persist.errors import AlreadyLocked, Fenced, Stopped
from tests.unit.persist.filled_place import FIRST, SCHEMA, check_usable, orders, start


def test_the_second_owner_is_told_who_the_first_is(root: Path) -> None:
    with start(root, holder="pid 1 on host-a") as client:
        with pytest.raises(AlreadyLocked, match="'server' is held by pid 1 on host-a") as raised:
            start(root)
        assert "reentrance id" in str(raised.value)
        assert "take_over" in str(raised.value)
        assert orders(client).write([({"k": 3}, 5, 1)]).result() == Done()
    check_usable(root)


def test_a_fenced_owner_is_told_by_whom(root: Path) -> None:
    old = start(root)
    write = orders(old)
    with start(root, take_over=True, holder="pid 2 on host-b"):
        with pytest.raises(Fenced, match="was taken over by pid 2 on host-b: epoch 3 fences our"):
            write.write([({"k": 3}, 5, 1)]).result()
        with pytest.raises(Fenced):
            write.seal(9)
    old.stop()
    check_usable(root)


def test_another_role_is_not_the_owner(root: Path) -> None:
    with start(root), start(root, role=RoleName("ingest/7")) as other:
        assert orders(other).write([({"k": 3}, 5, 1)]).result() == Done()
    check_usable(root)


def test_after_the_end_every_call_says_so(root: Path) -> None:
    client = start(root)
    write, read = client.create_or_load("orders", SCHEMA, key=("k",))
    client.stop()
    for ask in (
        lambda: write.write([FIRST]),
        lambda: write.seal(9),
        lambda: client.destroy("orders"),
        lambda: read.snapshot(9, 0),
    ):
        with pytest.raises(Stopped, match="open the location again"):
            ask()
    check_usable(root)
