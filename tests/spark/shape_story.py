"""The story of two tables, and a view over them held against its own query at every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.catalyst.render import execute
from headwater.compute.catalyst.user_functions import session_of
from headwater.compute.controller import ViewController
from headwater.compute.ir.node import TemporalFilter, Text, walk
from headwater.compute.ir.plan import Plan
from headwater.compute.select import mentioned
from headwater.persist.client import Client
from headwater.persist.consolidate import DIFF
from headwater.persist.spark import arrow_frame
from headwater.testing.at_times import AT, TIMES, plan_at_times, rows_at_times
from headwater.testing.few_rows import for_few_rows
from tests.unit.compute import model


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
        self._given: dict[tuple[str, tuple[int, ...]], Any] = {}

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

    def _frame(self, client: Client, relation: str, times: Sequence[int]) -> Any:
        """Return what a relation had at these times, each row once per time."""
        known = relation, tuple(times)
        if known not in self._given:
            read = client.reader(relation)
            tables = {time: _plain(read.snapshot(time).to_table()) for time in times}
            self._given[known] = arrow_frame(self._asked, rows_at_times(tables)).coalesce(1)
        return self._given[known]

    def _ask(self, client: Client, name: str, sql: str, times: list[int]) -> None:
        """Let Spark run the query's plan over what there was at each time, all in one job."""
        session = self._asked
        names = {each.name: each.name for each in client.core.state.collections.values()}
        relations = mentioned(sql, names)
        schemas = {each: client.reader(each).snapshot(times[0]).schema for each in relations}
        plan = Workspace(session, schemas).compile_sql(sql)
        frames = {each: self._frame(client, each, times) for each in relations}
        if any(isinstance(node, Text | TemporalFilter) for node in walk(plan.root)):
            answers = [_at(session, plan, frames, time) for time in times]
            answer = reduce(lambda left, right: left.union(right), answers).toArrow()
        else:
            frames[TIMES] = arrow_frame(session, pa.table({AT: pa.array(times, pa.int64())}))
            answer = execute(session, plan_at_times(plan), frames).toArrow()
        for time in times:
            rows = answer.filter(pc.equal(answer[AT], time)).drop_columns([AT])
            self.answers[name, time] = model.rows_of(rows)


def _plain(snapshot: pa.Table) -> pa.Table:
    """Return a row that is there several times as often."""
    counts = snapshot[DIFF].to_numpy()
    return snapshot.drop_columns([DIFF]).take(pa.array(np.repeat(np.arange(counts.size), counts)))


def _at(session: Any, plan: Plan, frames: Mapping[str, Any], time: int) -> Any:
    """Ask at one time alone: of what is a text, or depends on the time of reading."""
    there = {name: rows.where(f"{AT} = {time}").drop(AT) for name, rows in frames.items()}
    return execute(session, plan, there, now_ms=time).withColumn(AT, lit(time))
