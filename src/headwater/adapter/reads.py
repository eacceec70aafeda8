"""Reads: at which time, when everything is complete there, and by whom they are answered.

A read goes through four steps: its time is chosen (``adapter/timestamps.py``), history is held
there (``adapter/holds.py``), every collection is waited for, and the query is answered: by probing
keyed runs where it asks for a primary key, else by the evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from headwater.adapter import catalog
from headwater.adapter.catalog import Sources
from headwater.adapter.errors import TimestampNotReadable
from headwater.adapter.holds import Holds
from headwater.adapter.keyed_reads import PROBE_INDEX, KeyedReads
from headwater.adapter.limit import Limit
from headwater.adapter.ports import Evaluator
from headwater.adapter.sql.point import point_read
from headwater.adapter.sql.statements import AsOf, Select, Value
from headwater.adapter.sql.tokens import SYSTEM_PREFIX
from headwater.adapter.system import Seen, system_view
from headwater.adapter.timeline import Timeline
from headwater.adapter.timestamps import Choice, Input, Isolation, asks_oracle, choose
from headwater.base.ids import GlobalId
from headwater.persist import evolution
from headwater.persist.client import Client, ReadHandle
from headwater.persist.decision import collection_of
from headwater.persist.errors import AsOfBeforeSince
from headwater.persist.evolution import DIFF
from headwater.persist.read import check_readable
from headwater.persist.state import State

CHOICES_MAX: Final = 4
"""How often a time is chosen anew when history moved on between the choice and the hold."""


class Reads:
    """Chooses times and answers queries for one location."""

    def __init__(
        self,
        client: Client,
        timeline: Timeline,
        evaluator: Evaluator,
        keyed: KeyedReads,
        holds: Holds,
        translate: Callable[[str, catalog.Schemas], str],
        seen: Callable[[], Seen],
    ) -> None:
        self._core = client.core
        self._timeline = timeline
        self._evaluator = evaluator
        self._keyed = keyed
        self._holds = holds
        self._translate = translate
        self._seen = seen

    def sources(self, names: Sequence[str]) -> Sources:
        """Return what the names of a query mean now."""
        system = tuple(name for name in names if name.startswith(SYSTEM_PREFIX))
        found = catalog.sources(self._core.state, [n for n in names if n not in system])
        found.system = system
        found.schemas.update((name, system_view(name).schema) for name in system)
        return found

    def choose(self, sources: Sources, isolation: Isolation, as_of: AsOf | None) -> Choice:
        """Choose the time of a read."""
        oracle = self._timeline.read_time() if asks_oracle(isolation, as_of) else None
        # Frontiers are looked at after the oracle: they have then what it has.
        state = self._core.state
        inputs = [_input(state, gid, name) for gid, name in sources.collections.items()]
        return choose(inputs, isolation, as_of, oracle)

    @contextmanager
    def chosen(
        self, sources: Sources, isolation: Isolation, as_of: AsOf | None, limit: Limit
    ) -> Iterator[int]:
        """Choose a time and hold it, with everything complete there."""
        for attempt in range(CHOICES_MAX):
            with self._holds.at(self._timeline.upper - 1):
                time = self.choose(sources, isolation, as_of).time
                self._holds.acquire(time)
            try:
                try:
                    self.wait(time, sources.collections, limit)
                except TimestampNotReadable:
                    if as_of is not None or attempt + 1 == CHOICES_MAX:
                        raise
                    continue
                yield time
                return
            finally:
                self._holds.release(time)

    def wait(self, time: int, collections: Mapping[GlobalId, str], limit: Limit) -> None:
        """Wait until every collection is complete at ``time``."""
        for gid, name in collections.items():
            try:
                self._wait(time, gid, name, limit)
            except AsOfBeforeSince as error:
                since = 0 if error.since.is_closed else error.since.only()
                raise TimestampNotReadable(name, time, since) from error

    def _wait(self, time: int, gid: GlobalId, name: str, limit: Limit) -> None:
        def ready(state: State) -> bool | None:
            collection = collection_of(state, gid)
            check_readable(collection.name, collection, time)
            return None if state.upper(collection).allows(time) else True

        while not self._core.wait(ready, limit.rest_s()):
            if limit.is_over():
                raise limit.error(f'"{name}" to be complete at time {time}')

    def rows(self, query_sql: str, sources: Sources, time: int) -> pa.Table:
        """Evaluate a query in the client's dialect at ``time``."""
        text = sources.text(self._translate(query_sql, sources.schemas))
        local = self._local(sources)
        return self._evaluator.select(text, time, relations=sources.relations, local=local)

    def _local(self, sources: Sources) -> dict[str, pa.Table]:
        """Return the rows of the system views that are read, all of one moment."""
        if not sources.system:
            return {}
        seen = self._seen()
        return {name: system_view(name).table(seen) for name in sources.system}

    def select(self, statement: Select, sources: Sources, time: int) -> pa.Table:
        """Answer a query at ``time``, which is held and complete."""
        point = self._point(statement, sources, time)
        return self.rows(statement.query_sql, sources, time) if point is None else point

    def _point(self, statement: Select, sources: Sources, time: int) -> pa.Table | None:
        if (
            len(statement.tables) != 1
            or sources.system
            or len(sources.tables) != 1
            or sources.derived
        ):
            return None
        ((gid, table),) = sources.tables.items()
        if statement.tables != (table,):
            return None
        collection = collection_of(self._core.state, gid)
        schema = evolution.from_bytes(collection.schemas[-1])
        point = point_read(statement.query_sql, table, schema, collection.key)
        if point is None:
            return None
        found = self.by_key(gid, time, [point.key])
        columns = [found.column(column) for column, _ in point.columns]
        fields = [pa.field(name, schema.field(column).type) for column, name in point.columns]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def by_key(self, gid: GlobalId, time: int, keys: Sequence[Sequence[Value]]) -> pa.Table:
        """Return the rows of a table that have these keys, and ``__probe_index``: which."""
        collection = collection_of(self._core.state, gid)
        schema = evolution.from_bytes(collection.schemas[-1])
        arrays: list[Any] = [
            pa.array([key[place] for key in keys], schema.field(name).type)
            for place, name in enumerate(collection.key)
        ]
        snapshot = ReadHandle(self._core, gid).snapshot(time)
        found = self._keyed.lookup(snapshot, arrays)
        return found.select([PROBE_INDEX, *schema.names, DIFF])


def _input(state: State, gid: GlobalId, name: str) -> Input:
    collection = collection_of(state, gid)
    upper = state.upper(collection)
    return Input(
        name,
        None if collection.since.is_closed else collection.since.only(),
        None if upper.is_closed else upper.only(),
    )
