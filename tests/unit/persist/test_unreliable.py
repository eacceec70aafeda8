"""The fault decorators do what their names say, and the counts add up."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Literal

import pytest

from headwater.base.errors import Determinate, Indeterminate
from headwater.base.ids import SeqNo
from headwater.persist.blob import MemoryBlob
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.location import Blob, Committed, Consensus, LogEntry
from headwater.testing.unreliable import (
    Crash,
    FailNth,
    Outage,
    UnreliableBlob,
    UnreliableConsensus,
)

Mode = Literal["before", "after"]


@pytest.mark.parametrize("seed", range(20))
def test_a_lossy_create_happens_unless_the_request_was_lost_or_refused(seed: int) -> None:
    print("seed", seed)
    memory = MemoryBlob()
    blob = UnreliableBlob(memory, Random(seed), rate=0.6)
    seen: Counter[str] = Counter()
    for number in range(100):
        key = f"k/{number}"
        try:
            assert blob.create(key, b"x")
        except Determinate:
            happened, outcome = False, "refused"
        except Indeterminate as error:
            happened = "reply" in str(error)
            outcome = "reply lost" if happened else "request lost"
        else:
            happened, outcome = True, "created"
        assert (memory.get(key) is not None) == happened
        seen[outcome] += 1
    assert all(seen[o] > 5 for o in ("refused", "reply lost", "request lost", "created")), seen


@pytest.mark.parametrize("seed", range(20))
def test_a_log_appended_until_it_is_there_has_each_entry_once(seed: int) -> None:
    print("seed", seed)
    memory = MemoryConsensus()
    log = UnreliableConsensus(memory, Random(seed), rate=0.6)
    for number in range(30):
        for _attempt in range(200):
            try:
                if log.append(SeqNo(number), b"%d" % number) == Committed():
                    break
                assert log.scan(SeqNo(number), 1)[0].data == b"%d" % number
                break
            except (Determinate, Indeterminate):
                continue
        else:
            pytest.fail("200 attempts failed at a rate of 0.6")
    entries = tuple(LogEntry(SeqNo(n), b"%d" % n) for n in range(30))
    assert memory.scan(SeqNo(0), 100) == entries


def test_the_same_seed_gives_the_same_faults() -> None:
    def faults(seed: int) -> list[str]:
        blob = UnreliableBlob(MemoryBlob(), Random(seed), rate=0.5)
        outcomes = []
        for number in range(50):
            try:
                outcomes.append(str(blob.create(f"k{number}", b"")))
            except (Determinate, Indeterminate) as error:
                outcomes.append(str(error))
        return outcomes

    assert faults(7) == faults(7)
    assert faults(7) != faults(8)


def test_rate_zero_is_reliable_and_reads_fail_too() -> None:
    memory = MemoryBlob()
    memory.create("k", b"x")
    assert list(UnreliableBlob(memory, Random(1), rate=0).list()) == list(memory.list())
    broken = UnreliableBlob(memory, Random(1), rate=1)
    for call in (lambda: broken.get("k"), lambda: list(broken.list()), lambda: broken.delete("x")):
        with pytest.raises((Determinate, Indeterminate)):
            call()


def write_something(blob: Blob, log: Consensus) -> None:
    """Six effects, with reads between them."""
    blob.create("a", b"1")
    log.append(SeqNo(0), b"a")
    assert blob.get("a") == b"1"
    blob.create("b", b"2")
    log.append(SeqNo(1), b"b")
    assert log.head() == 1
    log.truncate(SeqNo(1))
    blob.delete("a")


def what_is_there(blob: Blob, log: Consensus) -> tuple[object, ...]:
    return (tuple(info.key for info in blob.list()), log.head(), len(log.scan(SeqNo(0), 10)))


AFTER_EFFECT = [
    ((), None, 0),
    (("a",), None, 0),
    (("a",), 0, 1),
    (("a", "b"), 0, 1),
    (("a", "b"), 1, 2),
    (("a", "b"), 1, 1),
    (("b",), 1, 1),
]


@pytest.mark.parametrize("mode", ["before", "after"])
def test_fail_nth_dies_at_every_effect_in_turn(mode: Mode) -> None:
    for n in range(1, 10):
        memory, log = MemoryBlob(), MemoryConsensus()
        process = FailNth(n, mode)
        blob, consensus = process.blob(memory), process.consensus(log)
        if n > 6:
            write_something(blob, consensus)
            assert not process.crashed
            assert process.effects == 6
            continue
        with pytest.raises(Crash):
            write_something(blob, consensus)
        assert process.crashed
        assert process.effects == n
        assert what_is_there(memory, log) == AFTER_EFFECT[n if mode == "after" else n - 1]

        for call in (lambda b=blob: b.get("a"), consensus.head, lambda b=blob: b.create("z", b"")):
            with pytest.raises(Crash):
                call()
        blob.close()
        consensus.close()
        assert what_is_there(memory, log) == AFTER_EFFECT[n if mode == "after" else n - 1]


def test_no_handler_of_exceptions_survives_a_crash() -> None:
    assert not issubclass(Crash, Exception)


def test_an_outage_ends() -> None:
    outage = Outage()
    blob, log = outage.blob(MemoryBlob()), outage.consensus(MemoryConsensus())
    blob.create("k", b"x")
    for failure in (Indeterminate, Determinate):
        outage.begin(failure)
        with pytest.raises(failure):
            blob.get("k")
        with pytest.raises(failure):
            log.append(SeqNo(0), b"")
        with pytest.raises(failure):
            next(blob.list())
    outage.end()
    assert blob.get("k") == b"x"
    assert log.head() is None
    assert log.append(SeqNo(0), b"") == Committed()
