"""A program of a step without Spark: the stages as they are, the passages between them in Python.

    done = Stages(Chain((flow,))).run(task)             # as ``Program.run``

Stages are those of ``dataflow/stage.py``: they read and write parts of a real location. An edge
that needs a passage is evaluated row by row (``testing/dataflow_model.py``), for the expressions
that plans of ``testing/plans.py`` have; one on which a row fails has to be native.

    :class:`TasksHere` runs a first step by ranges so (``compute/hydration.py``), and counts rows

Relied on by: ``tests/unit/dataflow/test_ranges.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa

from headwater.base.decoding import from_msgpack
from headwater.compute.dataflow import stage
from headwater.compute.dataflow.chain import Chain
from headwater.compute.dataflow.exchange import Aside
from headwater.compute.dataflow.graph import Dataflow
from headwater.compute.dataflow.lanes import FAILED, NOTE, contents, read_failure
from headwater.compute.dataflow.task import Done, RaisedError, StepTask, decode_note
from headwater.compute.hydration import Work
from headwater.persist.consolidate import DIFF, TIME
from headwater.testing.dataflow_model import mapped

_ATTEMPTS = count()


@dataclass(frozen=True)
class Stages:
    """The stages of a chain, one after the other."""

    chain: Chain

    def run(self, task: StepTask) -> Done:
        """Run a step; return what its stages did, and the rows that failed, without a reason."""
        attempt = f"here-{next(_ATTEMPTS)}"
        batches: Iterable[pa.RecordBatch] = ()
        for level in range(self.chain.depth):
            if level:
                batches = self._passed(level - 1, batches)
            batches = list(stage.run(self.chain, level, task, batches, attempt))
        done = Done()
        last = self.chain.leaving(self.chain.depth - 1).unpack(batches)
        for payload in contents(last.get(NOTE)):
            done.add(decode_note(payload))
        for payload in contents(last.get(FAILED)):
            done.errors += self._failures(payload)
        return done

    def _passed(self, level: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lanes = self.chain.leaving(level).unpack(batches)
        entering = self.chain.entering(level + 1)
        forwarded = {NOTE, FAILED, *self.chain.passed(level)}
        going = [(lane, updates) for lane, updates in lanes.items() if lane in forwarded]
        for edge in self.chain.computed(level):
            if edge.source in lanes:
                columns = self.chain.lanes[edge.target].columns
                going.append((edge.target, mapped(edge.node, lanes[edge.source], columns)))
        for lane, updates in going:
            yield from entering.batches({lane: updates})

    def _failures(self, payload: bytes) -> list[RaisedError]:
        rows = read_failure(payload).table()
        found = []
        for row in rows.to_pylist():
            time, diff = row.pop(TIME), row.pop(DIFF)
            found.append(RaisedError(0, "FAILED", repr(row), None, time, diff))
        return found


@dataclass
class TasksHere:
    """Tasks of a first step, one after the other in this process, and what each of them read."""

    scattered: list[int] = field(default_factory=list)
    """Of each task that scattered: how many rows."""
    ranges: list[int] = field(default_factory=list)
    """Of each task of a range: how many, those found by probes among them."""

    def together(self, work: Sequence[Work]) -> list[bytes]:
        """Run one after the other."""
        answers = [one(f"here-{next(_ATTEMPTS)}") for one in work]
        for answer in answers:
            self.scattered.append(sum(one.rows for one in from_msgpack(answer, list[Aside])))
        return answers

    def program(self, flow: Dataflow) -> Callable[[StepTask], Done]:
        """Return the stages of a phase."""
        stages = Stages(Chain((flow,)).prepared())

        def run(task: StepTask) -> Done:
            done = stages.run(task)
            self.ranges.append(sum(done.rows_read.values()))
            return done

        return run
