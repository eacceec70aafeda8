"""What a flow over a stream has to append: its query over the rows that were inserted.

A stream is what is inserted into a relation, row by row, for ever; its deletions are no part of it.
A flow appends, for each piece of the stream,

    query(rows inserted in the piece; everything else as it is at the piece's end)

which is the same however the stream is cut into pieces only if every row of it goes its own way:
filters, projections, generators, unions of streams, joins with relations that are read as they are.
:func:`require_appendable` refuses the rest (aggregates, DISTINCT, windows, joins of two streams,
outer joins that keep rows of the other side): they belong into a materialized view, which is
exact. A relation that is joined is read as it is at the end of the piece, as Spark does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.compute.catalyst.render import execute
from headwater.compute.ir.node import (
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Project,
    Scan,
    Union,
    walk,
)
from headwater.compute.ir.plan import Plan
from headwater.compute.ir.refusal import Refused
from headwater.compute.select import spark_message
from headwater.persist.client import Client, ReadHandle
from headwater.persist.consolidate import DIFF, TIME, consolidate
from headwater.persist.multiplicity import repeat_rows
from headwater.persist.spark import arrow_frame, frame_rows, rows_frame, updates_frame

_HINT: Final = "make it a materialized view over the streaming table, which is kept exactly"
_BY_LEFT: Final[tuple[JoinKind, ...]] = ("inner", "left", "semi", "anti")
_BY_RIGHT: Final[tuple[JoinKind, ...]] = ("inner", "right")


class FlowFailed(HeadwaterError):
    """A query that fails on what arrived."""

    def __init__(self, flow: str, why: str) -> None:
        super().__init__(f"flow {flow!r} fails on what arrived: {why}")


def require_appendable(plan: Plan, streams: Collection[str]) -> None:
    """Refuse a query whose rows do not follow from those of its streams one by one."""
    if not _carries(plan.root, streams):
        raise Refused(
            "a streaming table without a stream",
            "nothing says which rows are new",
            hint="read its input with spark.readStream or STREAM, or use @dp.materialized_view",
        )
    for node in walk(plan.root):
        carrying = [_carries(each, streams) for each in node.inputs]
        if not any(carrying):
            continue
        match node:
            case Filter() | Project() | Generate() | Expand():
                continue
            case Union() if all(carrying):
                continue
            case Union():
                raise Refused(
                    "a union of a stream and a relation",
                    "its rows would be appended again in each run",
                    hint="read the relation as a stream, too, or use @dp.materialized_view",
                )
            case Join() if all(carrying):
                raise Refused("a join of two streams", "rows meet that arrive apart", hint=_HINT)
            case Join(kind=kind) if kind in (_BY_LEFT if carrying[0] else _BY_RIGHT):
                continue
            case Join(kind=kind):
                raise Refused(
                    f"a {kind} join that keeps rows of what is no stream",
                    "whether a row finds a partner is never settled",
                    hint=_HINT,
                )
            case _:
                name = type(node).__name__.lower()
                raise Refused(f"{name} over a stream", "it changes what was appended", hint=_HINT)


def _carries(node: Node, streams: Collection[str]) -> bool:
    return any(isinstance(each, Scan) and each.relation in streams for each in walk(node))


def contents(client: Client, session: Any, collection: str, time: int) -> DataFrame:
    """Return the rows of a collection at a time."""
    return rows_frame(session, client.reader(collection).snapshot(time))


def inserted(client: Client, session: Any, gid: GlobalId, after: int, until: int) -> DataFrame:
    """Return the rows that were inserted at times in ``(after, until]``, each as often as it was.

    What comes and goes at one time was never there.
    """
    frame = updates_frame(session, ReadHandle(client.core, gid), after + 1, until + 1)
    settled = consolidate(frame_rows(frame))
    came = settled.filter(pc.greater(settled.column(DIFF), 0)).drop_columns([TIME])
    return arrow_frame(session, repeat_rows(came, "a stream"))


def appended(session: Any, flow: str, plan: Plan, frames: Mapping[str, DataFrame]) -> pa.Table:
    """Return what the query of a flow yields of these rows."""
    with _failing(flow):
        return frame_rows(execute(session, plan, frames))


@contextmanager
def _failing(flow: str) -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        raise FlowFailed(flow, spark_message(error)) from error
