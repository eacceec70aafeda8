"""Streaming tables and the outboxes of sinks: what arrived since the last run, appended once.

A run takes, of every stream that a flow reads, what it has not taken yet (``pipeline_flows``,
``pipeline_files``), evaluates the flow's query over it, and commits the rows together with how far
it has come. So a run that dies appends nothing, and the next one appends it all.

History that a flow has still to take is kept for it by a subscription of its own, which is
acknowledged after the commit; it may lag behind, and never runs ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headwater.adapter import catalog
from headwater.adapter.group_commit import TableWrite
from headwater.adapter.limit import NO_LIMIT
from headwater.adapter.timestamps import STRICT
from headwater.api import Database
from headwater.api.database import quoted
from headwater.api.values import rows_of
from headwater.compute.declared.arrivals import appended, contents, inserted
from headwater.compute.declared.feeds import Feed
from headwater.compute.declared.guarded import streamed
from headwater.compute.declared.outside import File, Outside
from headwater.persist.spark import arrow_frame
from headwater.persist.state import State
from headwater.pipelines import feeds
from headwater.pipelines.feeds import Position
from headwater.pipelines.graph import Dataset, FlowQuery
from headwater.pipelines.ledger import Ledger

SUBSCRIPTION: Final = "pipeline_{target}_{flow}_{input}"


def key_of(dataset: Dataset, flow: FlowQuery) -> str:
    """Return the name of a flow in the ledger."""
    return f"{dataset.name}/{flow.name}"


def files_key(dataset: Dataset, flow: FlowQuery, input_: str) -> str:
    """Return the name under which the ledger has the files that a flow took of a stream."""
    return f"{key_of(dataset, flow)}/{input_}"


def news(database: Database | None, ledger: Ledger, dataset: Dataset) -> str:
    """Return what has arrived for a dataset; empty: nothing."""
    for flow in dataset.flows:
        reached = ledger.reached(key_of(dataset, flow))
        for stream in flow.streams:
            relation, feed = streamed(stream), flow.query.feeds.get(stream)
            if feed is not None:
                if _is_further(feed, position(reached, stream)):
                    return f"{stream} has new rows"
            elif relation is None:
                new = _new_files(ledger, dataset, flow, flow.query.outside[stream])
                if new:
                    return f"{len(new)} new file{'s' * (len(new) > 1)} of {stream}"
            elif relation not in reached:
                return f"flow {flow.name} is new"
            elif database is not None and is_updated(database.state(), relation, reached[relation]):
                return f"{relation} has new rows"
    return ""


def position(reached: Mapping[str, int], stream: str) -> Position:
    """Return how far a flow has taken a stream from outside; empty: it has taken nothing.

    >>> position({"orders": 7, "input_rate_1/start": 5, "input_rate_1/seconds": 2}, "input_rate_1")
    {'start': 5, 'seconds': 2}
    """
    prefix = f"{stream}/"
    return {k.removeprefix(prefix): at for k, at in reached.items() if k.startswith(prefix)}


def _is_further(feed: Feed, before: Position) -> bool:
    if not before:
        return True
    with feeds.reading(feed) as stream:
        return stream.now(before) != before


def is_updated(state: State, relation: str, after: int) -> bool:
    """Whether a relation has updates at times later than ``after``."""
    if catalog.find(state, relation) is None:
        return True
    _, gid = catalog.relation(state, relation)
    return any(part.time_max > after for part in state.collections[gid].parts())


def _new_files(
    ledger: Ledger, dataset: Dataset, flow: FlowQuery, each: Outside
) -> tuple[File, ...]:
    # A file is taken once, by its name: what is written into it afterwards is not looked at.
    taken = {file.path for file in ledger.files(files_key(dataset, flow, each.name))}
    return tuple(file for file in each.files() or () if file.path not in taken)


@dataclass(slots=True)
class _Taken:
    """What one flow takes in this run."""

    rows: list[pa.Table]
    reached: dict[str, int]
    files: dict[str, tuple[File, ...]]
    fed: dict[str, pa.Table]
    """Rows of streams from outside."""


class Appending:
    """Appends to the streaming tables of one run."""

    def __init__(self, database: Database, ledger: Ledger, session: Any) -> None:
        self._database = database
        self._ledger = ledger
        self._session = session

    def append(self, dataset: Dataset, *, anew: bool = False) -> int:
        """Append what has arrived; ``anew``: in place of what is there. Return how many rows."""
        database, ledger = self._database, self._ledger
        engine = database.engine
        self._subscribe(dataset)
        target = engine.coordinator.target(dataset.table)
        rows = [target.schema.empty_table()]
        bookkeeping: list[TableWrite] = []
        acknowledged: dict[str, int] = {}
        with self._time(dataset) as time:
            for flow in dataset.flows:
                taken = self._take(dataset, flow, time, anew=anew)
                rows += [_fitting(each, target.schema, dataset.name) for each in taken.rows]
                if taken.reached:
                    moved = ledger.moved(key_of(dataset, flow), taken.reached, anew=anew)
                    bookkeeping.append(moved)
                for stream, files in taken.files.items():
                    reader = files_key(dataset, flow, stream)
                    before = () if anew else ledger.files(reader)
                    bookkeeping.append(ledger.taken(reader, {*before, *files}))
                acknowledged |= {
                    subscription(dataset, flow, relation): taken.reached[relation]
                    for relation in map(streamed, flow.streams)
                    if relation in taken.reached
                }
        new = pa.concat_tables(rows)
        # What a sink was sent is there for good; its outbox is empty.
        replaced = anew and dataset.kind != "sink"
        old = database.whole(dataset.name).cast(target.schema) if replaced else new.slice(0, 0)
        diffs = [-1] * old.num_rows + [1] * new.num_rows
        both = pa.concat_tables([old, new])
        if both.num_rows:
            bookkeeping.append(TableWrite(target.id, target.name, (), both, diffs))
        if bookkeeping:
            ledger.commit(*_merged(bookkeeping))
        for name, at in acknowledged.items():
            database.sql(f"ACKNOWLEDGE {quoted(name)} UP TO {at + 1}")
        return int(new.num_rows)

    def _subscribe(self, dataset: Dataset) -> None:
        """Have the history kept that the flows have still to take."""
        for flow in dataset.flows:
            for stream in flow.streams:
                relation = streamed(stream)
                if relation is None:
                    continue
                name = subscription(dataset, flow, relation)
                if catalog.find(self._database.state(), name) is None:
                    self._database.sql(f"CREATE SUBSCRIPTION {quoted(name)} TO {quoted(relation)}")

    @contextmanager
    def _time(self, dataset: Dataset) -> Iterator[int]:
        """Choose and hold a time at which everything that a dataset reads is complete."""
        engine = self._database.engine
        engine.state()
        reads = engine.coordinator.reads
        if not dataset.reads:
            yield self._database.now()
            return
        engine.keep_views(dataset.reads)
        sources = reads.sources(dataset.reads)
        with reads.chosen(sources, STRICT, None, NO_LIMIT) as time:
            yield time

    def _take(self, dataset: Dataset, flow: FlowQuery, time: int, *, anew: bool) -> _Taken:
        taken = _Taken([], {}, {}, {})
        before = {} if anew else self._ledger.reached(key_of(dataset, flow))
        is_new = False
        for stream in flow.streams:
            relation, feed = streamed(stream), flow.query.feeds.get(stream)
            if feed is not None:
                moved = self._feed(feed, position(before, stream), taken)
                is_new = is_new or moved
            elif relation is None:
                each = flow.query.outside[stream]
                if anew:
                    taken.files[stream] = each.files() or ()
                else:
                    taken.files[stream] = _new_files(self._ledger, dataset, flow, each)
                is_new = is_new or bool(taken.files[stream])
            else:
                after = before.get(relation)
                state = self._database.state()
                is_new = is_new or after is None or is_updated(state, relation, after)
                taken.reached[relation] = time
        if not is_new:
            return _Taken([], {}, {}, {})
        frames = self._frames(flow, time, before, taken)
        taken.rows.append(appended(self._session, key_of(dataset, flow), flow.query.plan, frames))
        return taken

    @staticmethod
    def _feed(feed: Feed, before: Position, taken: _Taken) -> bool:
        """Take what has come of a stream from outside; return whether anything is to be noted."""
        with feeds.reading(feed) as stream:
            first = before or stream.first()
            until = stream.now(first)
            taken.fed[feed.name] = stream.rows(first, until)
        taken.reached |= {f"{feed.name}/{part}": at for part, at in until.items()}
        return until != before

    def _frames(
        self, flow: FlowQuery, time: int, before: Mapping[str, int], taken: _Taken
    ) -> dict[str, Any]:
        """Return what each relation of the flow's plan stands for in this run."""
        client, state = self._database.engine.client, self._database.state()
        frames: dict[str, Any] = {}
        for name in flow.query.plan.relations:
            outside, relation = flow.query.outside.get(name), streamed(name)
            if name in taken.fed:
                frames[name] = arrow_frame(self._session, taken.fed[name])
            elif name in taken.files:
                assert outside is not None
                frames[name] = outside.rows_of(taken.files[name])
            elif outside is not None:
                frames[name] = outside.rows()
            else:
                found, gid = catalog.relation(state, relation or name)
                after = None if relation is None else before.get(relation)
                if after is None:
                    frames[name] = contents(client, self._session, found.collection, time)
                else:
                    frames[name] = inserted(client, self._session, gid, after, time)
        return frames


def subscription(dataset: Dataset, flow: FlowQuery, relation: str) -> str:
    """Return the name of the subscription that keeps a flow's history."""
    return SUBSCRIPTION.format(target=dataset.name, flow=flow.name, input=relation)


def _fitting(rows: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """Return rows with all columns of a table; NULL in those that the flow does not bring."""
    given = rows_of(rows, schema, name)
    arrays = [
        given.column(field.name)
        if field.name in given.column_names
        else pa.nulls(given.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _merged(writes: list[TableWrite]) -> list[TableWrite]:
    """Return one write for each table."""
    found: dict[str, TableWrite] = {}
    for each in writes:
        there = found.setdefault(each.name, each)
        if there is not each:
            rows = pa.concat_tables([there.rows, each.rows])
            diffs = [*there.diffs, *each.diffs]
            found[each.name] = TableWrite(each.id, each.name, each.key, rows, diffs)
    return list(found.values())
