"""A step on Spark: the chain of its views as one planned frame, run again for every step.

The plan and the Python functions in it depend on the views alone; what a step reads and where it
writes is in a local property of the job (``task.py``), which every task sees. So Catalyst plans a
set of views once, and a step may be of some of them: the others are not in its task. There is no
exchange in the plan: one with an exchange, run a second time, would silently answer from the first
run's shuffle files (``tests/spark/test_planned_chain.py``).

Kept by: this module. Relied on by: the stepper.
"""

from __future__ import annotations

import ctypes
import gc
import pickle
import struct
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext

from headwater.base.ids import GlobalId
from headwater.compute.catalyst import ordered
from headwater.compute.catalyst.jvm import java_object
from headwater.compute.catalyst.try_eval import failure_messages, passage_session
from headwater.compute.catalyst.user_functions import register_called
from headwater.compute.dataflow import stage
from headwater.compute.dataflow.chain import Chain
from headwater.compute.dataflow.lanes import FAILED, LANE, NOTE, read_failure
from headwater.compute.dataflow.passage import called_layers, passage_sql
from headwater.compute.dataflow.passage_window import window_layers
from headwater.compute.dataflow.task import Done, RaisedError, StepTask, decode_note
from headwater.compute.ir.plan import UserFunction
from headwater.persist.consolidate import DIFF, TIME
from headwater.persist.spark import this_attempt

PROPERTY: Final = "headwater.step"
CHAINS_MAX: Final = 8
_CLASSES: Final = ("PlannedRun",)

Body = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Program:
    """Views, planned to be stepped together; ``views`` are those of the chain, in its order.

    ``functions`` are those of the user's that they call, view by view.
    """

    def __init__(
        self,
        session: Any,
        chain: Chain,
        views: tuple[GlobalId, ...],
        functions: Sequence[Sequence[UserFunction]] = (),
    ) -> None:
        self._session = session = passage_session(session)
        self._functions = functions
        for own in functions:
            register_called(session, own)
        self._chain = chain
        self.views = views
        pickled = pickle.dumps(chain.prepared(), 5)
        frame = session.range(0, 1, 1, 1)
        for level in range(chain.depth):
            if level:
                edges, passed = chain.computed(level - 1), chain.passed(level - 1)
                stream = chain.leaving(level - 1)
                layers = window_layers(edges, stream)
                if layers:
                    # A function in Python (an exact sum) forgets that there is one partition; a
                    # window would exchange to make sure.
                    frame = frame.coalesce(1)
                for layer in layers:
                    ordered.register(session, " ".join(layer))
                    frame = frame.selectExpr(*layer)
                for layer in called_layers(edges, stream):
                    frame = frame.selectExpr(*layer)
                frame = frame.selectExpr(*passage_sql(edges, stream, chain.entering(level), passed))
            schema = chain.leaving(level).spark_schema()
            frame = frame.mapInArrow(_body(pickled, level), schema)
        (payload,) = chain.leaving(level).places(NOTE)
        self._frame = frame.selectExpr(LANE, f"{payload} AS payload")
        require_no_exchange(self._frame)

    def run(self, task: StepTask, group: str, description: str) -> Done:
        """Run a step of some of the views as a job of a group; what a task raises passes."""
        runner = java_object(self._session, _CLASSES)
        said = runner.collect(self._frame._jdf, group, description, PROPERTY, task.encoded())
        done = Done()
        for lane, payload in _rows(b64decode(said)):
            if lane == NOTE:
                done.add(decode_note(payload))
            elif lane == FAILED:
                done.errors += self._failures(payload)
        return done

    def _failures(self, payload: bytes) -> list[RaisedError]:
        """Return the errors that rows raised in an edge: each evaluated alone, for its message."""
        failure = read_failure(payload)
        edge = self._chain.numbered(failure.edge)
        view = max(v for v, base in enumerate(self._chain.bases) if base <= edge.source)
        rows = failure.table()
        names = {one.called: one.name for own in self._functions[view : view + 1] for one in own}
        failed = failure_messages(self._session, edge, rows, names)
        times, diffs = rows.column(TIME).to_pylist(), rows.column(DIFF).to_pylist()
        return [
            RaisedError(view, why.condition, why.message, None, time, diff)
            for why, time, diff in zip(failed, times, diffs, strict=True)
        ]


def _rows(said: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the rows that ``java/PlannedRun.java`` wrote."""
    at = 0
    while at < len(said):
        lane, length = struct.unpack_from(">ii", said, at)
        at += 8 + length
        yield lane, said[at - length : at]


def require_no_exchange(frame: Any) -> None:
    """Refuse a plan that would answer its second run from the first one's shuffle files."""
    node = frame._jdf.queryExecution().executedPlan()
    while True:
        name = node.getClass().getSimpleName()
        assert "Exchange" not in name, f"a step of one partition is planned with {name}"
        if not node.children().size():
            return
        node = node.children().apply(0)


@lru_cache(maxsize=CHAINS_MAX)
def _chain(pickled: bytes) -> Chain:
    """Return the chain of a program: a worker reads it once, not for every step."""
    chain = pickle.loads(pickled)  # noqa: S301  # our own driver's
    assert isinstance(chain, Chain)
    return chain


def release_memory() -> None:
    """Give back what a large step left: the worker lives on, and its next steps are small."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # What numpy had; only glibc keeps it, and only glibc can be asked.
        trim(0)


def _body(pickled: bytes, level: int) -> Body:
    def body(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "only a task runs a stage"
        told = context.getLocalProperty(PROPERTY)
        assert told is not None, "the job has no step"
        task = StepTask.decoded(told)
        yield from stage.run(_chain(pickled), level, task, batches, this_attempt())
        if any(view is not None and view.hydrating for view in task.views):
            release_memory()

    return body
