"""The story of two tables, and a view over them held against its own query at every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property, reduce
from random import Random
from typing import Any, Final

import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.catalyst.render import execute
from headwater.compute.catalyst.user_functions import session_of
from headwater.compute.controller import ViewController
from headwater.compute.select import mentioned
from headwater.persist.client import Client
from headwater.persist.read import Snapshot
from headwater.persist.spark import rows_frame
from headwater.testing.few_rows import for_few_rows
from tests.unit.compute import model

AT: Final = "__at"


class Story:
    """Two tables with a random history: deletes, replaced rows, NULLs, duplicates, idle times."""

    def __init__(self, seed: int, session: Any = None) -> None:
        """``session`` knows the functions of the queries, where they are not Spark's own."""
        print(f"seed {seed}")
        self.random = Random(seed)
        self.session = session
        self.tables = {"orders": model.orders(), "customers": model.customers()}
        self.time = 0
        self.answers: dict[tuple[str, int], Counter[model.Row]] = {}
        self._seen: list[tuple[str, int, Counter[model.Row]]] = []
        self._given: dict[tuple[str, int], tuple[Snapshot, Any]] = {}

    def go_on(self, client: Client, times: int = 3) -> None:
        """Write some times to both tables, and seal them."""
        upper = self.time + times
        for name, table in self.tables.items():
            writer, _ = client.create_or_load(name, table.schema)
            for time in range(self.time, upper):
                writer.write(table.change(self.random, time)).result()
            writer.seal(upper).result()
        self.time = upper

    def check(self, client: Client, controller: ViewController, name: str, sql: str) -> None:
        """Hold the view against the query itself, at every time that can be read."""
        self.see(client, controller, name)
        self.judge(client, {name: sql})

    def see(self, client: Client, controller: ViewController, name: str) -> None:
        """Note what a view has, at every time that can be read."""
        read = client.reader(name)
        assert not read.upper.allows(self.time - 1), controller.failures()
        for time in range(read.since.only(), self.time):
            found = model.rows_of(read.snapshot(time).to_table())
            self._seen.append((name, time, found))

    def judge(self, client: Client, queries: Mapping[str, str]) -> None:
        """Hold all that was seen against the queries; each is asked for all its times at once."""
        for name, sql in queries.items():
            times = {time for seen, time, _ in self._seen if seen == name}
            unasked = sorted(time for time in times if (name, time) not in self.answers)
            if unasked:
                self._ask(client, name, sql, unasked)
        for name, time, found in self._seen:
            assert found == self.answers[name, time], f"{name} at time {time}"
        self._seen.clear()

    @cached_property
    def _asked(self) -> Any:
        return for_few_rows(session_of(self.session or SparkSession.active()))

    def _at(self, client: Client, relation: str, time: int) -> tuple[Snapshot, Any]:
        """Return what a relation had at a time, which is kept as long as its frame."""
        if (relation, time) not in self._given:
            snapshot = client.reader(relation).snapshot(time)
            self._given[relation, time] = snapshot, rows_frame(self._asked, snapshot)
        return self._given[relation, time]

    def _ask(self, client: Client, name: str, sql: str, times: list[int]) -> None:
        """Let Spark run the query's plan over what there was at each time, all in one job."""
        session = self._asked
        names = {each.name: each.name for each in client.core.state.collections.values()}
        relations = mentioned(sql, names)
        given = {t: {each: self._at(client, each, t) for each in relations} for t in times}
        schemas = {each: snapshot.schema for each, (snapshot, _) in given[times[0]].items()}
        plan = Workspace(session, schemas).compile_sql(sql)
        answers = [
            execute(
                session, plan, {each: frame for each, (_, frame) in there.items()}, now_ms=time
            ).withColumn(AT, lit(time))
            for time, there in given.items()
        ]
        answer = reduce(lambda left, right: left.union(right), answers).toArrow()
        for time in times:
            rows = answer.filter(pc.equal(answer[AT], time)).drop_columns([AT])
            self.answers[name, time] = model.rows_of(rows)
