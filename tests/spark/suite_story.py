"""A suite of queries as views over changing tables, held against DuckDB and against Spark.

All tables and views are in one location and one controller. A step takes in several times, each
with its own changes of several tables; after it, every view is compared with DuckDB at *every* time
of the step, on the tables' rows at that time, and some views with Spark's answer at the last time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from headwater.compute.controller import ViewController
from headwater.persist.client import Client
from headwater.testing.duck import Duck, difference
from headwater.testing.relation import Change, Relation, as_updates

Batch = Callable[[], Sequence[Change]]


class Stream(Protocol):
    """What the story needs of a generator."""

    relations: dict[str, Relation]

    def tables(self) -> dict[str, pa.Table]: ...


class SuiteStory:
    """Tables, views, and what DuckDB says of them."""

    def __init__(
        self,
        client: Client,
        session: Any,
        stream: Stream,
        queries: Mapping[str, str],
        by_duck: Mapping[str, str],
    ) -> None:
        """Write the tables as they are, at time 0; ``by_duck`` are queries in DuckDB's words."""
        self._client = client
        self._stream = stream
        self._queries = queries
        self._by_duck = by_duck
        self.time = 1
        self.controller = ViewController(client, session)
        self._writers = {}
        for name, rows in stream.tables().items():
            self._writers[name], _ = client.create_or_load(name, rows.schema)
            self._writers[name].compare_and_append(as_updates(rows, 0, 1), 0, 1).result()
        self._answers: dict[str, set[str]] = {name: set() for name in queries}
        self._tables = {0: stream.tables()}

    def create_views(self) -> dict[str, str]:
        """Create a view for every query; return by which strategy each is kept."""
        for name, sql in self._queries.items():
            self.controller.create_view(name, sql)
        return {name: self.controller.explain(name).split(":")[0] for name in self._queries}

    def go_on(self, batches: Sequence[Batch]) -> None:
        """Let each batch happen at a time of its own."""
        for batch in batches:
            for change in batch():
                self._writers[change.relation].write(change.updates(self.time)).result()
            self._tables[self.time] = self._stream.tables()
            self.time += 1
        for writer in self._writers.values():
            writer.seal(self.time).result()

    def step(self) -> None:
        """Step all views to the end of the tables."""
        advanced = self.controller.run_once()
        assert self.controller.failures() == {}
        assert advanced == tuple(self._queries), "every view has advanced"

    def check(self) -> None:
        """Hold all views against DuckDB at all new times, and against Spark at the last."""
        for time, tables in self._tables.items():
            duck = Duck(tables)
            for name, sql in self._queries.items():
                answer = self._ask(duck, name, sql)
                wrong = difference(self._rows(name, time), answer)
                assert wrong is None, f"{name} at time {time}, by DuckDB: {wrong}"
                if answer.num_rows:
                    self._answers[name].add(repr(sorted(map(repr, answer.to_pylist()))))
            duck.close()
        self._tables = {}
        last = self.time - 1
        for name, sql in self._queries.items():
            expected = self.controller.select(sql, last)
            found = _counted(self._rows(name, last))
            assert found == _counted(expected), f"{name} at time {last}, by Spark"

    def unmoved(self) -> set[str]:
        """Return the views that have not had two different answers with rows so far."""
        return {name for name, answers in self._answers.items() if len(answers) < 2}

    def _ask(self, duck: Duck, name: str, sql: str) -> pa.Table:
        text = self._by_duck.get(name)
        return duck.answer(sql) if text is None else duck.execute(text)

    def _rows(self, name: str, time: int) -> pa.Table:
        return self._client.reader(name).snapshot(time).to_table()


def _counted(table: pa.Table) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in table.to_pylist():
        diff = row.pop("__diff", 1)
        found[repr(tuple(row.values()))] += diff
    return found
