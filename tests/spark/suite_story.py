"""A suite of queries as views over changing tables, held against DuckDB and against Spark.

All tables and views are in one location and one controller. A step takes in several times, each
with its own changes of several tables. What every view has after it, at *every* time of the step,
is compared with DuckDB's answer on the tables' rows at that time; and at the end with Spark's, who
is asked for all times of a view at once (``testing/at_times.py``): planning a query costs Spark
more than the rows do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headwater.algebra.frontier import Frontier
from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.catalyst.render import execute
from headwater.compute.catalyst.user_functions import session_of
from headwater.compute.controller import ViewController
from headwater.compute.maintained import MaintainedView
from headwater.persist.client import Client
from headwater.persist.decision import collection_named
from headwater.persist.spark import arrow_frame
from headwater.testing.at_times import AT, TIMES, plan_at_times, rows_at_times
from headwater.testing.duck import Duck, difference
from headwater.testing.few_rows import for_few_rows
from headwater.testing.random_views import step_together
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
        self._session = session
        self._stream = stream
        self._queries = queries
        self._by_duck = by_duck
        self.time, self._unseen = 1, 0
        self.controller = ViewController(client, session)
        self._writers = {}
        for name, rows in stream.tables().items():
            self._writers[name], _ = client.create_or_load(name, rows.schema)
            self._writers[name].compare_and_append(as_updates(rows, 0, 1), 0, 1).result()
        self._answers: dict[str, set[str]] = {name: set() for name in queries}
        self._tables = {0: stream.tables()}
        self._seen: dict[str, dict[int, pa.Table]] = {name: {} for name in queries}

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
        """Step all views to the end of the tables; those that are new in one job, too."""
        views = [view for view in self.controller.views() if isinstance(view, MaintainedView)]
        assert step_together(self._client, self.controller, views) == []
        state = self._client.core.state
        uppers = {state.upper(collection_named(state, name)) for name in self._queries}
        assert uppers == {Frontier.of(self.time)}, "every view has advanced"

    def see(self) -> None:
        """Note what all views have at all new times, and hold it against DuckDB."""
        for time in range(self._unseen, self.time):
            duck = Duck(self._tables[time])
            for name, sql in self._queries.items():
                found = self._client.reader(name).snapshot(time).to_table()
                answer = self._ask(duck, name, sql)
                wrong = difference(found, answer)
                assert wrong is None, f"{name} at time {time}, by DuckDB: {wrong}"
                if answer.num_rows:
                    self._answers[name].add(repr(sorted(map(repr, answer.to_pylist()))))
                self._seen[name][time] = found
            duck.close()
        self._unseen = self.time

    def judge(self) -> None:
        """Hold all that was seen against Spark."""
        session = for_few_rows(session_of(self._session))
        frames = {}
        for name in self._writers:
            rows = rows_at_times({time: tables[name] for time, tables in self._tables.items()})
            frames[name] = arrow_frame(session, rows).coalesce(1)
        frames[TIMES] = arrow_frame(session, pa.table({AT: pa.array(self._tables, pa.int64())}))
        workspace = Workspace(session, {n: rows.schema for n, rows in self._tables[0].items()})
        for name, sql in self._queries.items():
            plan = plan_at_times(workspace.compile_sql(sql))
            answer = execute(session, plan, frames).toArrow()
            for time, found in self._seen[name].items():
                expected = answer.filter(pc.equal(answer[AT], time)).drop_columns([AT])
                assert _counted(found) == _counted(expected), f"{name} at time {time}, by Spark"

    def unmoved(self) -> set[str]:
        """Return the views that have not had two different answers with rows so far."""
        return {name for name, answers in self._answers.items() if len(answers) < 2}

    def _ask(self, duck: Duck, name: str, sql: str) -> pa.Table:
        text = self._by_duck.get(name)
        return duck.answer(sql) if text is None else duck.execute(text)


def _counted(table: pa.Table) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in table.to_pylist():
        diff = row.pop("__diff", 1)
        found[repr(tuple(row.values()))] += diff
    return found
