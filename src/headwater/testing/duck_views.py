"""Views of a location, kept without Spark: recomputed by DuckDB, for tests of the adapter.

    views = DuckViews(client, answer)         # answer(sql, time, relations) -> rows
    views.create("u7", query, {"t": "u1"}, key=("k",), also=commands)
    views.stop()

They are stored as recomputed views are (``compute/recompute.py``, whose decisions they follow), and
stepped by a thread that wakes on commits. So whatever rests on views (waiting for them, indexes,
subscriptions, holds) meets real collections with real frontiers; only the evaluation is another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.collection.run_layout import RunLayout
from headwater.compute import definition, recompute
from headwater.compute.install import removal, reserving
from headwater.compute.recompute import Recomputation, RecomputedView
from headwater.compute.step import due
from headwater.persist import evolution
from headwater.persist.client import Client
from headwater.persist.commands import (
    Atomic,
    Command,
    CreateOrLoad,
    OpenReader,
    SetItem,
)
from headwater.persist.consolidate import DIFF, TIME, consolidate
from headwater.persist.decision import collection_named
from headwater.persist.layout import PARQUET
from headwater.persist.part import Pending
from headwater.persist.spark_parts import Target
from headwater.persist.state import State

Answer = Callable[[str, int, Mapping[str, str]], pa.Table]


class DuckViews:
    """Keeps views of one location."""

    def __init__(self, client: Client, answer: Answer) -> None:
        self._core = client.core
        self._answer = answer
        self._stopping = threading.Event()
        self._stepping = threading.Lock()
        self._starting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="duck-views", daemon=True)
        self.broken: dict[GlobalId, str] = {}
        """Views that are not to be stepped, and why: for tests of what stalls."""
        if definition.stored(client.core.state):
            self.run()

    def create(
        self,
        name: str,
        query: str,
        relations: Mapping[str, str],
        schema: pa.Schema,
        key: tuple[str, ...] = (),
        start: int | None = None,
        also: Sequence[Command] = (),
    ) -> None:
        """Create a view, durably."""
        commands = self.made(self._core.state, name, query, relations, schema, key, start)
        self._core.submit(Atomic((*commands, *also))).result()
        self.run()

    def made(
        self,
        state: State,
        name: str,
        query: str,
        relations: Mapping[str, str],
        schema: pa.Schema,
        key: tuple[str, ...] = (),
        start: int | None = None,
    ) -> tuple[Command, ...]:
        """Return what makes a view, to be decided after ``state``."""
        inputs = {n: collection_named(state, collection) for n, collection in relations.items()}
        if start is None:
            sinces = [each.since.only() for each in inputs.values()]
            uppers = [state.upper(each).only() - 1 for each in inputs.values()]
            start = max([0, *sinces, *([min(uppers)] if uppers else [])])
        (gid,) = reserving(self._core)(1)
        view = RecomputedView(
            version=recompute.STORED_VERSION,
            name=name,
            sql=query,
            plan=b"",
            relations={n: each.id for n, each in inputs.items()},
            start=start,
            output=gid,
            why="DuckDB has no incremental rule",
            spark_version="",
        )
        made = CreateOrLoad(
            name,
            evolution.to_bytes(schema),
            key,
            RunLayout.name if key else PARQUET.name,
            start=start,
            id=gid,
        )
        holds = [
            OpenReader(each, view.reader_id, f"view {name}", Frontier.of(start))
            for each in view.inputs
        ]
        stored = SetItem(definition.item_key(gid), definition.encoded(view))
        return (made, *holds, stored)

    def removed(self, state: State, name: str) -> tuple[Command, ...]:
        """Return what removes a view of ``state``."""
        views = definition.stored(state)
        return tuple(
            command
            for view in views
            if view.name == name
            for command in removal(state, view, [each for each in views if each.id != view.id])
        )

    def run(self) -> None:
        """Step views from now on."""
        with self._starting:
            if not self._thread.is_alive():
                self._thread.start()

    def drop(self, name: str, also: Sequence[Command] = ()) -> bool:
        """Drop a view."""
        with self._stepping:
            removed = self.removed(self._core.state, name)
            if removed:
                self._core.submit(Atomic((*removed, *also))).result()
            return bool(removed)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let views stay where they are, while tables go on."""
        with self._stepping:
            yield

    def stop(self) -> None:
        """Stop stepping."""
        self._stopping.set()
        self._core.wake()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                for view in self._core.wait(self._ready, 1.0) or ():
                    with self._stepping:
                        self._step(view)
            except HeadwaterError:
                if self._core.stopped:
                    return

    def _ready(self, state: State) -> Sequence[RecomputedView] | None:
        if self._stopping.is_set():
            return ()
        views = [view for view in definition.stored(state) if view.id not in self.broken]
        ready = [v for v in views if isinstance(v, RecomputedView) and due(state, v) is not None]
        return ready or None

    def _step(self, view: RecomputedView) -> None:
        planned = recompute.plan_step(self._core.state, view)
        if planned is None:
            return
        release = self._core.pin(planned.pinned())
        try:
            with self._core.step() as step:
                pending = [] if planned.is_empty() else self._changes(planned)
                parts = step.write(pending) if pending else ()
                self._core.submit(Atomic(recompute.commands(planned, parts))).result()
        finally:
            release()

    def _changes(self, planned: Recomputation) -> list[Pending]:
        target = Target.of(planned.output)
        names = {n: self._core.state.collections[g].name for n, g in planned.view.relations.items()}
        before, _ = planned.before(self._core)
        changed = []
        for time in planned.times(self._core):
            rows = self._answer(planned.view.sql, time, names).cast(target.schema)
            now = consolidate(rows.append_column(DIFF, pa.array(np.ones(len(rows), np.int64))))
            gone = before.set_column(
                before.column_names.index(DIFF), DIFF, pa.array(-before.column(DIFF).to_numpy())
            )
            both = pa.concat_tables([now.select(gone.column_names), gone.cast(now.schema)])
            difference = consolidate(both)
            times = pa.array(np.full(len(difference), time, np.int64))
            place = difference.column_names.index(DIFF)
            changed.append(difference.add_column(place, TIME, times))
            before = now
        changes = [table for table in changed if table.num_rows]
        if not changes:
            return []
        updates = pa.concat_tables(changes)
        order = evolution.updates_schema(target.schema).names
        return [target.pending(updates.select(order))]
