"""Defects planted in the delta rules: each is caught by the oracle, on plans that are fine without.

The plans are those of ``test_random_plans.py``, by their seeds; what the model does between steps
is planted in the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.compute.dataflow.memory import Memory
from headwater.compute.dataflow.operator import History
from headwater.compute.dataflow.ops import accumulate
from headwater.compute.dataflow.ops.changes import Changes
from headwater.testing.dataflow_model import _Kept
from tests.unit.dataflow import test_accumulate, test_random_plans

Plant = Callable[[pytest.MonkeyPatch], None]


def _no_pairs_of_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every lookup is strict: what both sides get at one time never meets."""

    def probe(self: History, keys: Sequence[Any], **how: Any) -> pa.Table:
        return real(self, keys, **{**how, "strict": how.get("at") is not None})

    real = History.probe
    monkeypatch.setattr(History, "probe", probe)


def _held_at_upper(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was before the upper and what is at it are no longer told apart."""
    real = _Kept.compact
    monkeypatch.setattr(_Kept, "compact", lambda self, upper: real(self, upper + 1))


def _not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup without a time sees what an arrangement has beyond the step."""

    def probe(self: History, keys: Sequence[Any], **how: Any) -> pa.Table:
        self.ignore_from = None
        return real(self, keys, **how)

    real = History.probe
    monkeypatch.setattr(History, "probe", probe)


def _retracted_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change takes back what was there before the step, not before itself."""
    monkeypatch.setattr(Changes, "before", property(lambda self: self.groups))


def _without_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group is shown as long as anything of it was ever stored."""

    def present(*args: Any) -> Any:
        return np.ones_like(real(*args))

    real = accumulate._present
    monkeypatch.setattr(accumulate, "_present", present)


def _time_of_one_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partners of the whole step are found, and a pair has the time of the side that looked."""

    def probe(self: History, keys: Sequence[Any], **how: Any) -> pa.Table:
        if how.get("at") is not None and not how.get("strict") and self.ignore_from is not None:
            how["at"] = self.ignore_from - 1
        return real(self, keys, **how)

    real = History.probe
    monkeypatch.setattr(History, "probe", probe)


def _remembered_from_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of a group is what it was before it changed again."""
    monkeypatch.setattr(Memory, "with_rows", lambda self, *_: self)


PLANTED: dict[Plant, int] = {
    _no_pairs_of_one_time: 18,
    _held_at_upper: 50,
    _not_cut: 213,
    _retracted_out_of_order: 1,
    _without_count: 22,
    _time_of_one_side: 18,
    _remembered_from_before: 103,
}
"""Each defect with the seed of a plan that it is seen in."""


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.strip("_"))
def test_a_defect_is_caught(monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    seed = PLANTED[plant]
    assert test_random_plans.check(seed) == "checked"
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=rf"seed {seed}, time \d+|a negative count"):
        test_random_plans.check(seed)


def test_a_lost_error_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def errors(*args: Any) -> pa.Table | None:
        found = real(*args)
        return None if found is None else found.slice(1)

    test_accumulate.test_an_overflow_is_an_error_while_it_holds()
    real = accumulate._errors
    monkeypatch.setattr(accumulate, "_errors", errors)
    with pytest.raises(AssertionError):
        test_accumulate.test_an_overflow_is_an_error_while_it_holds()
