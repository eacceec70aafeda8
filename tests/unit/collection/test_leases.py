"""Leases: who lets one go by has no right any more, and nothing moves because of that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.base.clock import ManualClock
from headwater.collection.collections import Bound, Collections
from headwater.persist.errors import InvalidCapability
from tests.unit.collection.numbered import DESCRIPTION, at, contents, rows

LEASE = 1_000


def test_an_expired_lease_is_refused_and_moves_nothing(
    collections: Collections, clock: ManualClock
) -> None:
    gid = collections.new_id()
    keeper, writer = collections.create(gid, DESCRIPTION)
    collections.update_and_downgrade(writer, rows((1, 0)), 100)
    leased = collections.acquire_read(gid, lease_ms=LEASE)
    keeper = collections.downgrade_read(keeper, 50)
    clock.set(5_000 + LEASE - 1)
    collections.renew_read(leased)
    clock.set(5_000 + 2 * LEASE - 2)
    collections.subscribe_at(leased).close()  # Not yet.
    clock.set(5_000 + 2 * LEASE - 1)
    for refused in (
        lambda: collections.subscribe_at(leased),
        lambda: collections.renew_read(leased),
        lambda: collections.clone_read(leased),
        lambda: collections.downgrade_read(leased, 60),
    ):
        with pytest.raises(InvalidCapability, match="expired"):
            refused()
    # Whatever else happens, since stays until somebody moves a capability explicitly.
    clock.set(10_000_000)
    collections.new_id()
    collections.acquire_read(gid, at=50)
    collections.renew_read(keeper)
    assert collections.status(gid) == Bound(at(0), at(100))
    collections.downgrade_read(keeper, 51)
    assert collections.status(gid) == Bound(at(50), at(100))
    with pytest.raises(InvalidCapability, match="never existed"):
        collections.renew_read(leased)


def test_a_clock_set_back_revives_nobody(collections: Collections, clock: ManualClock) -> None:
    gid = collections.new_id()
    collections.create(gid, DESCRIPTION)
    leased = collections.acquire_read(gid, lease_ms=LEASE)
    clock.set(5_000 + LEASE)
    collections.new_id()  # The log has seen the time.
    clock.set(0)
    with pytest.raises(InvalidCapability, match="expired"):
        collections.renew_read(leased)


def test_a_hold_without_lease_never_expires(collections: Collections, clock: ManualClock) -> None:
    gid = collections.new_id()
    read, write = collections.create(gid, DESCRIPTION)
    clock.set(2**50)
    collections.downgrade_read(read, 1)
    collections.update_and_downgrade(write, [], 5)
    assert collections.status(gid) == Bound(at(1), at(5))


def test_a_write_lease(collections: Collections, clock: ManualClock) -> None:
    gid = collections.new_id()
    _, keeper = collections.create(gid, DESCRIPTION)
    _, leased = collections.acquire_capabilities(gid, lease_ms=LEASE)
    keeper = collections.downgrade_write(keeper, 10)
    clock.set(5_000 + LEASE - 1)
    leased = collections.update_and_downgrade(leased, rows((1, 1)), 5)  # Renews as well.
    clock.set(5_000 + 2 * LEASE - 2)
    leased = collections.renew_write(leased)
    clock.set(5_000 + 4 * LEASE)
    attempts: list[Callable[[], object]] = [
        lambda: collections.update_and_downgrade(leased, rows((2, 6)), 7),
        lambda: collections.downgrade_write(leased, 7),
        lambda: collections.renew_write(leased),
        lambda: collections.clone_write(leased),
    ]
    for refused in attempts:
        with pytest.raises(InvalidCapability, match="expired"):
            refused()
    assert collections.status(gid) == Bound(at(0), at(5))
    collections.downgrade_write(keeper, 11)
    assert collections.status(gid) == Bound(at(0), at(11))
    assert contents(collections, gid, 10) == [1]


def test_a_clone_has_the_lease_of_its_original(
    collections: Collections, clock: ManualClock
) -> None:
    gid = collections.new_id()
    collections.create(gid, DESCRIPTION)
    read, write = collections.acquire_capabilities(gid, lease_ms=LEASE)
    clones = collections.clone_read(read), collections.clone_write(write)
    assert collections.reader(clones[0]).lease_ms == LEASE
    clock.set(5_000 + LEASE)
    with pytest.raises(InvalidCapability, match="expired"):
        collections.renew_read(clones[0])
    with pytest.raises(InvalidCapability, match="expired"):
        collections.renew_write(clones[1])


def test_cloning_and_renewing_sweep_nobody(collections: Collections, clock: ManualClock) -> None:
    gid = collections.new_id()
    read, write = collections.create(gid, DESCRIPTION)
    collections.acquire_capabilities(gid, lease_ms=LEASE)
    read = collections.downgrade_read(read, 5)
    write = collections.downgrade_write(write, 5)
    clock.set(5_000 + LEASE)
    collections.clone_read(read)
    collections.clone_write(write)
    collections.renew_read(read)
    collections.renew_write(write)
    assert collections.status(gid) == Bound(at(0), at(0))
