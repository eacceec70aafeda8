"""Run by ``test_view_cluster.py`` in a process of its own: one process has one SparkContext.

Views on a cluster of executors in processes of their own: they hydrate, by ranges, while one of the
executors is killed, take a step, and take another one in the middle of which the executor that runs
it is killed. The middle is certain: one
view computes for seconds between two stages, after the first one has written its object. A view is
delivered by a task, whose executor is killed before its commit, and again after it. Then that Spark
is stopped, and the views go on in the next one of the same JVM. Prints what was seen, as one JSON
object.

    view_cluster_story.py FOLDER MASTER EXTRA PIDS    EXTRA, PIDS: JSON; executors are below PIDS
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext

from headwater.collection.run_layout import LAYOUTS
from headwater.compute.controller import ViewController
from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.materialize.controller import Materializations
from headwater.materialize.definition import Binding, Endpoint
from headwater.materialize.in_task import ShardTasks
from headwater.persist.batch import Segment
from headwater.persist.client import Client, open_location
from headwater.persist.core import Settings
from headwater.persist.maintenance import Maintenance
from headwater.persist.part import PartName
from headwater.persist.spark import run_in_background
from headwater.testing.lost_executors import LostExecutors, When, eventually

FACTS = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("g", pa.int64()), ("w", pa.int64())])
KEYS = pa.schema([("id", pa.int64()), ("y", pa.int64())])
ROWS, KEYS_COUNT = 400, 100
EASY, HARD = 10, 60_000
"""How many additions a row costs the slow view."""
RANGES = 3
"""Into about so many the views are hydrated."""
STALLED_MAX = 6

Row = tuple[Any, ...]
Update = tuple[Row, int, int]
Table = list[Update]

SQL = {
    "slow": "SELECT f.g, sum(aggregate(sequence(1, f.w + c.y), 0L, (a, e) -> a + e)) AS s, "
    "count(*) AS n FROM facts f JOIN keys c ON f.k = c.id GROUP BY f.g",
    "outer": "SELECT f.id, c.y FROM facts f LEFT JOIN keys c ON f.k = c.id",
    "extremes": "SELECT g, min(id) AS low, max(id) AS high FROM facts GROUP BY g",
}


def at(table: Table, time: int) -> list[Row]:
    held: Counter[Row] = Counter()
    for row, when, diff in table:
        if when <= time:
            held[row] += diff
    return sorted(held.elements())


def slow(facts: list[Row], keys: list[Row]) -> Iterator[Row]:
    groups: dict[int, list[int]] = {}
    for _, k, g, w in facts:
        for id_, y in keys:
            if id_ == k:
                groups.setdefault(g, []).append((w + y) * (w + y + 1) // 2)
    for g, sums in groups.items():
        yield g, sum(sums), len(sums)


def outer(facts: list[Row], keys: list[Row]) -> Iterator[Row]:
    for id_, k, *_ in facts:
        yield from [(id_, y) for key, y in keys if key == k] or [(id_, None)]


def extremes(facts: list[Row], _: list[Row]) -> Iterator[Row]:
    for group in {g for _, _, g, _ in facts}:
        ids = [id_ for id_, _, g, _ in facts if g == group]
        yield group, min(ids), max(ids)


MEANT: dict[str, Callable[[list[Row], list[Row]], Iterator[Row]]] = {
    "slow": slow,
    "outer": outer,
    "extremes": extremes,
}


class Story:
    """Two tables, the views over them, and what they must hold."""

    def __init__(self, client: Client, session: Any) -> None:
        self.client, self.session = client, session
        self.controller = ViewController(client, session)
        self.tables: dict[str, Table] = {"facts": [], "keys": []}
        self.upper = 0

    def go_on(self, first: int, work: int = EASY) -> None:
        """Two times: rows come, and then every fourth of them goes, and a few keys change."""
        facts: Table = [
            ((i, i % KEYS_COUNT, i % 5, work), self.upper, 1) for i in range(first, first + ROWS)
        ]
        facts += [(row, self.upper + 1, -1) for row, _, _ in facts[::4]]
        new = range(KEYS_COUNT) if not self.upper else range(3)
        gone: Table = []
        if self.upper:
            there = at(self.tables["keys"], self.upper)
            gone = [(row, self.upper + 1, -1) for row in there if row[0] in new]
        keys: Table = [*gone, *(((i, first % 7 + i), self.upper + 1, 1) for i in new)]
        for name, schema, updates in (("facts", FACTS, facts), ("keys", KEYS, keys)):
            write, _ = self.client.create_or_load(name, schema)
            named = [(dict(zip(schema.names, row, strict=True)), t, d) for row, t, d in updates]
            write.compare_and_append(named, self.upper, self.upper + 2).result()
            self.tables[name] += updates
        self.upper += 2

    def wrong(self) -> list[str]:
        """Return which views are wrong, and at which times."""
        found = []
        for name, meant in MEANT.items():
            read = self.client.reader(name)
            for time_ in range(read.since.only(), self.upper):
                rows: Counter[Row] = Counter()
                for row in read.snapshot(time_, timeout=0).to_table().to_pylist():
                    rows[tuple(row.values())[:-1]] += row["__diff"]
                facts, keys = (at(self.tables[table], time_) for table in ("facts", "keys"))
                if rows != Counter(meant(facts, keys)):
                    found.append(f"{name} at {time_}")
        return found

    def objects(self) -> set[str]:
        return {info.key for info in self.client.core.blob.list("part/")}


def executors(roots: Sequence[int]) -> dict[str, int]:
    """Return the processes of executors below these, by the executors' names."""
    parents: dict[int, int] = {}
    commands: dict[int, list[str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
            commands[int(folder.name)] = (folder / "cmdline").read_text().split("\0")
        except OSError:  # it has ended
            continue
    found = {}
    for pid, command in commands.items():
        above = pid
        while above in parents and above not in roots:
            above = parents[above]
        if above in roots and "--executor-id" in command and "java" in command[0]:
            found[command[command.index("--executor-id") + 1]] = pid
    return found


def running_on(session: Any) -> str | None:
    """Return the executor of the task that runs now."""
    store = session._jsc.sc().statusStore()
    for stage in session.sparkContext.statusTracker().getActiveStageIds():
        listed = store.taskList(stage, 0, 10)
        for number in range(listed.size()):
            if listed.apply(number).status() == "RUNNING":
                return str(listed.apply(number).executorId())
    return None


def killed_step(story: Story, roots: Sequence[int]) -> dict[str, Any]:
    """Take a step; kill the executor that runs it when its first stage has written."""
    before = story.objects()
    with ThreadPoolExecutor(1) as thread:
        stepped = thread.submit(story.controller.run_once)
        victim = None
        while not stepped.done() and victim is None:
            if story.objects() - before:
                victim = running_on(story.session)
            time.sleep(0.01)
        assert victim is not None, "the step was over before it was in the middle"
        os.kill(executors(roots)[victim], signal.SIGKILL)
        dead = story.objects() - before
        stepped.result()
    assert not story.controller.failures(), story.controller.failures()
    names = [PartName.parse(key) for key in story.objects() - before]
    return {
        "written_by_the_dead": sorted(dead),
        # An object is named by its attempt, the stage in it, and its number in that.
        "attempts": len({name.attempt.rsplit(".", 2)[0] for name in names if name is not None}),
    }


def killed_hydration(story: Story, roots: Sequence[int]) -> dict[str, Any]:
    """Hydrate all views by ranges; kill an executor when some ranges are written."""
    with ThreadPoolExecutor(1) as thread:
        stepped = thread.submit(story.controller.run_once)
        victim = None
        while not stepped.done() and victim is None:
            if len(story.objects()) > RANGES:
                victim = running_on(story.session)
            time.sleep(0.01)
        assert victim is not None, "the views were hydrated before they were in the middle"
        os.kill(executors(roots)[victim], signal.SIGKILL)
        stepped.result()
    stalled = hydrated_at_last(story)
    listed = story.session._jsc.sc().statusStore().executorList(False)
    every = [listed.apply(number) for number in range(listed.size())]
    worked = {str(one.id()) for one in every if one.id() != "driver" and one.totalTasks()}
    return {"worked": len(worked), "hydrated": story.wrong(), "stalled": stalled}


def hydrated_at_last(story: Story) -> list[str]:
    """Try stalled views again, as a controller that runs by itself does; return why they were.

    Spark runs a task four times, one at once after the other: on a machine that has no memory or no
    time for anybody, for a moment, that may be in vain.
    """
    stalled: list[str] = []
    while story.controller.failures():
        stalled += story.controller.failures().values()
        assert len(stalled) <= STALLED_MAX, stalled
        story.controller.run_once()
    return stalled


def unreferenced(story: Story) -> list[str]:
    """Return the objects that no batch refers to."""
    state = story.client.core.state
    where = (part.where for c in state.collections.values() for part in c.parts())
    return sorted(story.objects() - {at.key for at in where if isinstance(at, Segment)})


def main(folder: Path, master: str, extra: list[list[str]], pids: list[int]) -> None:
    settings = tuple((key, value) for key, value in extra)
    session = open_session(SparkSettings(master=master, extra=settings))
    with open_location(folder, layouts=LAYOUTS, settings=Settings(maintenance=False)) as client:
        story = Story(client, session)
        story.go_on(0)
        for name, sql in SQL.items():
            story.controller.create_view(name, sql)
        story.go_on(1_000)
        story.controller._stepper.range_rows = 2 * ROWS // RANGES
        seen = killed_hydration(story, pids or [os.getpid()])
        story.go_on(2_000)
        seen["advanced"] = story.controller.run_once()
        seen["stepped"] = story.wrong()
        story.go_on(3_000, HARD)
        seen |= killed_step(story, pids or [os.getpid()])
        seen["after_the_kill"] = story.wrong()
        client.create_or_load("after", KEYS)  # The next entry says that the step is closed.
        Maintenance(client.core).sweep()
        seen["left_of_the_dead"] = sorted(story.objects() & set(seen["written_by_the_dead"]))
        seen["left_aside"] = unreferenced(story)
        story.go_on(4_000)
        story.controller.run_once()
        seen["at_the_end"] = story.wrong()
        seen["failures"] = list(story.controller.failures().values())
        seen |= delivered_by_tasks(story, folder.parent / "endpoint.db")
        close_session()
        seen |= another_context(story)
    close_session()
    print(json.dumps(seen))


def delivered_by_tasks(story: Story, endpoint: Path) -> dict[str, Any]:
    """Deliver a view by a task whose executor is killed, and by another one, and a third."""
    # One shard, of the two slots that there are while no executor is missing.
    tasks = ShardTasks(partial(run_in_background, story.session), "127.0.0.1", lambda: 2)
    running = Materializations(story.client, retry_seconds=0.1, shard_tasks=tasks)
    view = story.client.reader("outer").id
    bindings = (
        Binding("outer", view, "rows", ("id",)),
        Binding("outer", view, "log", ("id",), delta_updates=True),
    )
    into = Endpoint("sqlite", {"path": str(endpoint)})
    running.install("m", into, bindings, tuning={"shards_in": "tasks"})
    found = running.get("m")
    assert found is not None
    lost = LostExecutors()
    moments: tuple[When, ...] = ("before", "after")
    for number, moment in enumerate(moments):
        eventually(lambda: found.status.checkpoint == story.upper, lambda: found.status)
        lost.arm(found, moment)
        story.go_on(6_000 + 1_000 * number)
        story.controller.run_once()
    eventually(lambda: found.status.checkpoint == story.upper, lambda: found.status)
    where = [shard.runs_in for _, shard in found.status.ranges]
    running.stop()
    with closing(sqlite3.connect(endpoint)) as db:
        rows = sorted(db.execute("SELECT id, y FROM rows").fetchall(), key=repr)
        changes = Counter(db.execute('SELECT id, y, "_meta/op" FROM log').fetchall())
    meant = sorted(outer(*(at(t, story.upper - 1) for t in story.tables.values())), key=repr)
    logged: Counter[Row] = Counter()
    for (id_, y, op), count in changes.items():
        logged[(id_, y)] += -count if op == "d" else count
    return {
        "killed_carriers": len(set(lost.killed)),
        "carried_in": where,
        "endpoint_is_the_view": rows == meant,
        # Each change once: what came and did not go is what is there, each row once.
        "log_is_the_view": sorted(logged.elements(), key=repr) == meant
        and min(logged.values()) >= 0,
    }


def another_context(story: Story) -> dict[str, Any]:
    """Go on in the next SparkContext of the same JVM, which knows nothing of what the first had."""
    jvm = SparkContext._gateway
    story.session = open_session(SparkSettings(master="local[2]"))
    story.controller = ViewController(story.client, story.session)
    story.go_on(5_000)
    return {
        "same_jvm": SparkContext._gateway is jvm,
        "again": story.controller.run_once(),
        "in_another_context": story.wrong(),
        # Its rows are read in the JVM, by classes that each context is sent.
        "asked": story.controller.select("SELECT count(*) AS n FROM `outer`", story.upper - 1)
        .column("n")
        .to_pylist(),
        "meant": [len(list(outer(*(at(t, story.upper - 1) for t in story.tables.values()))))],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4]))
