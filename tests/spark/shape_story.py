"""The story of two tables, and a view over them held against its own query at every time."""

from __future__ import annotations

from collections import Counter
from random import Random

from headwater.compute.controller import ViewController
from headwater.persist.client import Client
from tests.unit.compute import model


class Story:
    """Two tables with a random history: deletes, replaced rows, NULLs, duplicates, idle times."""

    def __init__(self, seed: int) -> None:
        print(f"seed {seed}")
        self.random = Random(seed)
        self.tables = {"orders": model.orders(), "customers": model.customers()}
        self.time = 0
        self.answers: dict[tuple[str, int], Counter[model.Row]] = {}

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
        read = client.reader(name)
        assert not read.upper.allows(self.time - 1), controller.failures()
        for time in range(read.since.only(), self.time):
            if (name, time) not in self.answers:
                self.answers[name, time] = model.rows_of(controller.select(sql, time))
            found = model.rows_of(read.snapshot(time).to_table())
            assert found == self.answers[name, time], f"{name} at time {time}"
