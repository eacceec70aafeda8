"""Tables of a lake, exactly once: a fault at every message, sessions in each other's way.

The bank of the consistency suite is delivered by a ``sum`` binding, a log and the accounts as they
are, into Delta Lake and into Iceberg. The judge reads the tables itself, with the lake's own client
alone: as soon as a session's driver has acknowledged, they are the oracle's at the time of the
recovery log's checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headwater.base.errors import HeadwaterError
from headwater.materialize.drivers.lake_driver import LakeDriver
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.key_range import KeyRange
from headwater.materialize.protocol import messages as m
from headwater.materialize.splits import inherited
from headwater.materialize.transport.in_process import InProcess
from headwater.materialize.wire.framing import Codec
from headwater.persist.errors import Fenced
from tests.integration.faulty_stream import Crash
from tests.integration.materialize_lake import (
    LAKES,
    STEP,
    Lake,
    Session,
    crash_on_acknowledge,
    judge,
    read_table,
    run,
    spec_of,
)
from tests.integration.materialize_places import OverTheWire
from tests.simulation.materialize_bank import FULL, TIMES, Bank, SharedLog
from tests.simulation.planted_drivers import without_last

pytestmark = pytest.mark.server

STRIDE = {"delta": 13, "iceberg": 41}
"""Every so manieth event is struck each time; all of them in ``make soak``."""


@pytest.fixture(params=LAKES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lake(kind: str, tmp_path: Path) -> Lake:
    return LAKES[kind](tmp_path)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("fault", ["crash", "lost reply", "replay"])
def test_every_event(kind: str, tmp_path: Path, fault: str, *, every: bool) -> None:
    event = ["crash", "lost reply", "replay"].index(fault)
    while run(LAKES[kind](tmp_path / str(event)), fault, event):
        event += 1 if every else STRIDE[kind]
    assert event > 10


@pytest.mark.parametrize("codec", Codec)
def test_over_the_wire(lake: Lake, codec: Codec) -> None:
    assert run(lake, "crash", 14, lambda: OverTheWire(lake.make(), codec))


@pytest.mark.parametrize("commits", [0, 1])
def test_a_zombie_applies_nothing_twice(lake: Lake, commits: int) -> None:
    """A session that froze between its commit and Acknowledge thaws after others went on."""
    bank, log = Bank(3), SharedLog()
    spec = spec_of(lake)
    frozen: list[m.Message] = []

    def freeze(message: m.Message) -> None:
        if isinstance(message, m.Acknowledge) and zombie.time == 2 * STEP:
            frozen.append(message)
            raise Crash

    driver = lake.make()
    zombie = Session(lake, spec, bank, log, InProcess(driver, freeze))
    zombie.deliver(STEP)
    with pytest.raises(Crash):
        zombie.deliver(2 * STEP)
    other = Session(lake, spec, bank, log, InProcess(lake.make()))
    other.settle()
    for upper in range(3 * STEP, (3 + commits) * STEP, STEP):
        other.deliver(upper)
        other.settle()
    (acknowledge,) = frozen
    assert isinstance(acknowledge, m.Acknowledge)
    list(driver.respond(acknowledge))
    judge(lake, bank, other.time)
    other.to_the_end()
    judge(lake, bank, TIMES)


def test_a_backfill_empties_and_fences(lake: Lake) -> None:
    bank, log = Bank(5), SharedLog()
    spec = spec_of(lake)
    driver = lake.make()
    zombie = Session(lake, spec, bank, log, InProcess(driver))

    def freeze(message: m.Message) -> None:
        if isinstance(message, m.Acknowledge):
            raise Crash

    zombie.deliver(STEP)
    zombie.delivery.settle()
    zombie.delivery._stream._watch = freeze  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        zombie.deliver(2 * STEP)
    # What it has committed is not applied; everything is delivered anew, and then it thaws.
    anew = spec_of(lake, backfill=1, last=spec)
    assert read_table(lake, "log", "seq") == read_table(lake, "accounts", "account") == []
    list(driver.respond(m.Acknowledge()))
    assert read_table(lake, "log", "seq") == read_table(lake, "accounts", "account") == []
    entry = log.entries[FULL]
    log.entries[FULL] = msgspec.structs.replace(entry, position=None, max_keys=())
    Session(lake, anew, bank, log, InProcess(lake.make())).delivery.settle()
    Session(lake, anew, bank, log, InProcess(lake.make())).to_the_end()
    judge(lake, bank, TIMES)


def test_shards_split_join_and_commit_at_once(lake: Lake) -> None:
    """What the parent has staged its children apply, once; and they write to one table at once."""
    bank, log = Bank(11), SharedLog()
    spec = spec_of(lake)
    parent = Session(lake, spec, bank, log, InProcess(lake.make()))
    parent.settle()
    parent.delivery._stream._watch = crash_on_acknowledge  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        parent.deliver(STEP)
    halves = FULL.split()
    for half in halves:
        log.entries[half] = inherited({FULL: log.entries[FULL]}, half)

    def deliver(half: KeyRange) -> None:
        session = Session(lake, spec, bank, log, InProcess(lake.make()), half)
        for upper in range(2 * STEP, TIMES - STEP + 1, STEP):
            session.deliver(upper)
        session.delivery.end()

    with ThreadPoolExecutor(len(halves)) as pool:
        list(pool.map(deliver, halves))
    judge(lake, bank, TIMES - STEP)
    log.entries[FULL] = inherited({half: log.entries[half] for half in halves}, FULL)
    Session(lake, spec, bank, log, InProcess(lake.make())).to_the_end()
    judge(lake, bank, TIMES)


def test_a_session_that_was_replaced_commits_nothing(lake: Lake) -> None:
    bank, log = Bank(7), SharedLog()
    spec = spec_of(lake)
    zombie = Session(lake, spec, bank, log, InProcess(lake.make()))
    zombie.deliver(STEP)
    owner = Session(lake, spec, bank, log, InProcess(lake.make()))
    owner.settle()
    owner.deliver(2 * STEP)
    with pytest.raises(Fenced):
        zombie.deliver(STEP + 1)
    owner.to_the_end()
    judge(lake, bank, TIMES)


# ---- defects -------------------------------------------------------------------------------------


class Defective:
    """A driver that is not right."""

    def __init__(self, driver: Responder) -> None:
        self._driver = driver

    def respond(self, request: m.Request) -> Iterator[m.Response]:
        yield from self._driver.respond(request)

    def close(self) -> None:
        self._driver.close()


class ForgetsWhatIsDue(Defective):
    """Takes what it finds staged for the work of a transaction that never committed."""

    def respond(self, request: m.Request) -> Iterator[m.Response]:
        if isinstance(request, m.Open):
            request = replace(request, state_json=b"")
        yield from self._driver.respond(request)


class DropsADocument(Defective):
    """Loses the last row of several."""

    def respond(self, request: m.Request) -> Iterator[m.Response]:
        if isinstance(request, m.StoreMany):
            request = without_last(request)
        yield from self._driver.respond(request)


class AppliesAtOnce(Defective):
    """Does not wait for the commit."""

    def respond(self, request: m.Request) -> Iterator[m.Response]:
        responses = list(self._driver.respond(request))
        if isinstance(request, m.StartCommit):
            assert isinstance(self._driver, LakeDriver)
            states = self._driver._states
            self._driver._applied()
            self._driver._states = states
        yield from responses


@pytest.mark.parametrize("defect", [ForgetsWhatIsDue, DropsADocument, AppliesAtOnce])
def test_planted_defects_are_seen(
    kind: str, tmp_path: Path, defect: Callable[[Responder], Responder]
) -> None:
    def seen() -> Iterator[bool]:
        for event in range(10, 60, 2):
            lake = LAKES[kind](tmp_path / str(event))
            try:
                run(lake, "crash", event, lambda lake=lake: defect(lake.make()))  # type: ignore[misc]
                yield False
            except (AssertionError, HeadwaterError):
                yield True

    assert any(seen())
