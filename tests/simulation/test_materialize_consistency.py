"""Delivery is consistent under every fault at every event; and each planted defect is seen.

Every scenario (``materialize_scenarios``) is run clean, where nothing may be wrong, and with each
defect, which must be seen in at least one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.key_range import KeyRange
from headwater.materialize.protocol import messages as m
from tests.simulation.materialize_bank import FULL, StagingDriver
from tests.simulation.materialize_scenarios import (
    FAULTS,
    STRIDE,
    ZOMBIES,
    Fault,
    Scenario,
    count_run,
    is_seen,
    scenarios,
)
from tests.simulation.planted_drivers import (
    CheckpointAfterData,
    CheckpointBeforeData,
    CommitsDuringStore,
    DropsADocument,
    SkipsTheFence,
)

pytestmark = pytest.mark.usefixtures("sqlite_without_fsync")


@pytest.mark.parametrize("stride", [STRIDE, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("make", [SqliteDriver, StagingDriver])
def test_every_fault_at_every_event(tmp_path: Path, make: type[SqliteDriver], stride: int) -> None:
    count = count_run(scenarios(tmp_path, make, stride=stride))
    assert count * stride > 100, "there is something to strike"


# ---- defects -------------------------------------------------------------------------------------


class AppliesAgain(StagingDriver):
    """Does not look whether it applied a file already."""

    def is_applied(self, file: str) -> bool:
        return False


class IgnoresKeyRanges(SqliteDriver):
    """Whatever range it is told to open, it opens all."""

    def _install(self, name: str, opened: KeyRange) -> Any:
        return super()._install(name, FULL)


class LoadsNothing(SqliteDriver):
    """Forgets to answer Loads: sums begin anew."""

    def _flushed(self) -> Iterator[m.Response]:
        self._loads.clear()
        yield from super()._flushed()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("defect", "faults"),
    [
        (CommitsDuringStore, FAULTS),
        (SkipsTheFence, ZOMBIES),
        (AppliesAgain, FAULTS),
        (DropsADocument, FAULTS),
        (IgnoresKeyRanges, FAULTS),
        (CheckpointAfterData, FAULTS),
        (CheckpointBeforeData, FAULTS),
        (LoadsNothing, FAULTS),
    ],
)
def test_planted_defects_are_seen(
    tmp_path: Path, defect: type[SqliteDriver], faults: Sequence[Fault]
) -> None:
    assert is_seen(scenarios(tmp_path, defect, faults))


def test_shards_that_ignore_their_ranges_are_seen(tmp_path: Path) -> None:
    assert is_seen(scenarios(tmp_path, SqliteDriver, kind_of=partial(Scenario, deliver_all=True)))
