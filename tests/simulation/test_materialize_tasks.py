"""Delivery by tasks is as consistent as by threads: under every fault at every event of a session.

The scenarios of ``test_materialize_consistency``, with each session carried by a task of its own
(``materialize_bank_tasks``): a crash is that of the task alone, and a zombie is a task that goes on
after its session was given up, or replaced. And each defect of what keeps a zombie out is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.materialize.checkpoint import Position
from headwater.materialize.drivers.fences import FencedOff
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.in_task import TaskGone
from headwater.materialize.key_range import KeyRange
from headwater.materialize.recovery import RecoveryEntry
from headwater.persist.client import open_location
from headwater.persist.core import Settings
from tests.simulation.materialize_bank import OpenedLog, SharedLog, StagingDriver
from tests.simulation.materialize_bank_tasks import BankFile, TaskShard
from tests.simulation.materialize_scenarios import (
    FAULTS,
    ZOMBIES,
    Crash,
    Fault,
    Faulty,
    Scenario,
    Session,
    count_run,
    is_seen,
    scenarios,
)
from tests.simulation.planted_drivers import SkipsTheFence

pytestmark = pytest.mark.usefixtures("sqlite_without_fsync")

STRIDE = 110
"""Every so manieth event is struck each time; all of them in ``make soak``."""


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BankFile]:
    where = tmp_path_factory.mktemp("banks")
    with open_location(where, settings=Settings(maintenance=False)) as client:
        yield BankFile(client)


class TaskScenario(Scenario):
    """One run in which every session is carried by a task."""

    gone = (Crash, TaskGone)
    fenced = (*Scenario.fenced, FencedOff, TaskGone)

    def __init__(self, banks: BankFile, given_up: bool, *args: Any, **more: Any) -> None:
        """``given_up``: the session of a frozen task ends before another takes over."""
        super().__init__(*args, **more)
        self._banks, self._given_up = banks, given_up
        self._begun: list[TaskShard] = []

    def _shard(self, key_range: KeyRange, stream: Faulty) -> Session:
        return TaskShard(
            self._banks,
            self._bank,
            self._spec,
            key_range,
            self._log,
            stream,
            self._begun.append,
        )

    def _taken_over(self) -> None:
        if self._given_up:
            self._begun[-1].abandon()


@pytest.mark.parametrize("stride", [STRIDE, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("make", "given_up"),
    [
        (SqliteDriver, False),
        (StagingDriver, False),
        (SqliteDriver, True),
        pytest.param(StagingDriver, True, marks=pytest.mark.soak),
    ],
)
def test_every_fault_at_every_event(
    tmp_path: Path, banks: BankFile, make: type[SqliteDriver], given_up: bool, stride: int
) -> None:
    kind_of = partial(TaskScenario, banks, given_up)
    # Only what freezes can be given up.
    faults: Sequence[Fault] = ZOMBIES if given_up else FAULTS
    count = count_run(scenarios(tmp_path, make, faults, stride, kind_of=kind_of))
    assert count * stride > 100, "there is something to strike"


class AnyEpoch(OpenedLog):
    """Commits for whoever asks: what a task that commits by itself would do."""

    def commit(self, entry: RecoveryEntry, acknowledged: Position | None) -> None:
        self._log.entries[self._key_range] = entry


class NoEpochs(SharedLog):
    """A log that keeps nobody out."""

    def opened(self, key_range: KeyRange) -> OpenedLog:
        return AnyEpoch(self, key_range, 0)


class Unfenced(TaskScenario):
    """Sessions over a log that keeps nobody out."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._log = NoEpochs()


@pytest.mark.parametrize(
    ("make", "kind", "given_up"),
    [(StagingDriver, Unfenced, False), (SkipsTheFence, TaskScenario, True)],
)
def test_a_zombie_that_nothing_keeps_out_is_seen(
    tmp_path: Path, banks: BankFile, make: type[SqliteDriver], kind: Any, given_up: bool
) -> None:
    some = tuple(Fault("zombie", 0, commits) for commits in (1, 2))
    assert is_seen(scenarios(tmp_path, make, some, 55, kind_of=partial(kind, banks, given_up)))
