"""Flows of pipelines: sinks have every row once, and changes by key leave what they say."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headwater import api
from headwater.pipelines import sinks
from headwater.pipelines.plan import Selection
from tests.spark import pipeline_world
from tests.spark.pipeline_world import SPEC, World, in_order, write

pytestmark = pytest.mark.spark

world = pipeline_world.world


SINKS = """
from pyspark import pipelines as dp

@dp.table
def arrived():
    return spark.readStream.schema("k BIGINT, v STRING").csv("files", header=True)

dp.create_sink("lines", "json", {"path": "out/lines", "checkpointLocation": "nowhere"})
dp.create_sink("lake", "delta", {"path": "out/lake"})
dp.create_sink("elsewhere", "noop")

@dp.append_flow(target="lines")
def to_lines():
    return spark.readStream.table("arrived").where("k < 100")

@dp.append_flow(target="lake")
def to_lake():
    return spark.readStream.table("arrived").selectExpr("k", "upper(v) AS v")

@dp.append_flow(target="elsewhere")
def to_elsewhere():
    return spark.readStream.table("arrived")
"""


def sunk(world: World) -> tuple[list[Any], list[Any]]:
    """What the two sinks have, as others read them."""
    lines = world.database.engine.spark.session.read.json(str(world.root / "out" / "lines"))
    lake = DeltaTable(str(world.root / "out" / "lake")).to_pyarrow_table().to_pylist()
    return sorted(map(tuple, lines.select("k", "v").collect())), sorted(
        (row["k"], row["v"]) for row in lake
    )


def test_sinks_have_every_row_once_whatever_is_killed(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, root = tmp_path / "data", tmp_path / "project"
    story = Path(__file__).with_name("killed_run_story.py")
    write(root / "spark-pipeline.yml", SPEC)
    write(root / "definitions/a.py", SINKS)
    write(root / "files/1.csv", "k,v\n1,a\n1,a\n2,\n100,z\n")
    given = ["--spec", str(root / "spark-pipeline.yml"), "--data", str(data)]
    died = subprocess.run([sys.executable, str(story), *given], check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    names = ("arrived", "lines", "lake", "elsewhere")
    # The dead one is named as the owner: --take-over, for somebody at a terminal.
    with api.open(data, writable=True, spark=spark, timeout_s=0, take_over=True) as database:
        world = World(root, database)
        # The batch is there, and nobody noted it; the others have nothing yet.
        done = world.run()
        assert done == {
            "arrived": "keep",
            "lines": ("append", 3),
            "lake": ("create", 4),
            "elsewhere": ("create", 4),
        }
        lines, lake = [(1, "a"), (1, "a"), (2, None)], [(1, "A"), (1, "A"), (2, None), (100, "Z")]
        assert sunk(world) == (lines, lake)
        assert world.run() == dict.fromkeys(names, "keep")
        # What is in the outbox goes out before what comes next, which may have other columns.
        world.write("files/2.csv", "k,v\n3,c\n")
        with monkeypatch.context() as patched:
            patched.setattr(sinks.Sending, "_write", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                world.run(Selection(refresh=("arrived", "lines")))
        assert sunk(world) == (lines, lake)
        world.write("files/3.csv", "k,v\n4,d\n")
        world.write("definitions/a.py", SINKS.replace('"k < 100"', '"k < 4"'))
        assert world.check()["lines"] == "append"
        done = world.run()
        assert (done["lines"], done["lake"]) == (("append", 1), ("append", 2))
        assert sunk(world) == ([*lines, (3, "c")], sorted([*lake, (3, "C"), (4, "D")]))
        # All of it again, where it was asked for.
        assert world.run(Selection(full=("lake",)))["lake"] == ("refill", 6)
        assert len(sunk(world)[1]) == 12
        assert database.whole("pipeline_sinks").num_rows == 3


CDC = """
from pyspark import pipelines as dp
from pyspark.sql.functions import col, expr

dp.create_streaming_table("people", comment="as they are")
dp.create_auto_cdc_flow(
    target="people", source="events", keys=["id"], sequence_by=col("n"),
    apply_as_deletes=expr("op = 'DELETE'"), except_column_list=["op"], stored_as_scd_type=1,
)
dp.create_streaming_table("history")
dp.create_auto_cdc_flow(
    target="history", source="people_changes", keys=["id"], sequence_by="n",
    apply_as_deletes="op = 'DELETE'", column_list=["id", "name", "op"], stored_as_scd_type="2",
    track_history_column_list=["name"],
)
"""


OPERATIONS = ("INSERT", "UPDATE", "DELETE", None)


def history(events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What SCD type 2 leaves of these, by walking along each key."""
    made: list[tuple[Any, ...]] = []
    ordered = sorted(events, key=in_order, reverse=True)  # Of equal ones the first counts.
    for key in {event[0] for event in events}:
        mine = {n: (name, op) for _, name, n, op in ordered if _ == key}
        current: tuple[Any, ...] | None = None
        for n in sorted(mine):
            name, op = mine[n]
            if current is not None and (op == "DELETE" or name != current[1]):
                made.append((*current, n))
                current = None
            if op != "DELETE":
                current = (key, name, op, n if current is None else current[3])
        if current is not None:
            made.append((*current, None))
    return sorted(made, key=in_order)


def test_changes_by_key_leave_the_newest_row_of_each_or_its_history(world: World) -> None:
    world.write("spark-pipeline.yml", SPEC)
    world.write("definitions/a.py", CDC)
    world.write(
        "definitions/b.sql",
        "CREATE STREAMING TABLE names FLOW AUTO CDC FROM STREAM(people_changes) KEYS (id) "
        "SEQUENCE BY n COLUMNS (id, name)",
    )
    sql = world.database.sql
    sql("CREATE TABLE events (id bigint, name text, n bigint, op text)")
    kept = ("people", "history", "names")

    def told(*events: tuple[Any, ...]) -> None:
        for event in events:
            values = ", ".join("NULL" if value is None else repr(value) for value in event)
            sql(f"INSERT INTO events VALUES ({values})")

    came = [
        (1, "Ann", 1, "INSERT"),
        (2, "Bob", 2, "INSERT"),
        (1, "Anna", 4, "UPDATE"),
        (2, "Bob", 3, "DELETE"),
        (3, "Cy", 5, None),
    ]
    told(*came)
    assert world.run() == {"people_changes": ("create", 5), **dict.fromkeys(kept, "create")}
    assert world.rows("people") == [(1, "Anna", 4), (3, "Cy", 5)]
    assert world.rows("names") == [(1, "Anna"), (2, "Bob"), (3, "Cy")]
    assert world.rows("history") == [
        (1, "Ann", "INSERT", 1, 4),
        (1, "Anna", "UPDATE", 4, None),
        (2, "Bob", "INSERT", 2, 3),
        (3, "Cy", None, 5, None),
    ]
    # What comes late changes nothing that came after it; what was taken may be forgotten.
    sql("DELETE FROM events")
    late = [(1, "late", 2, "UPDATE"), (3, "Cy", 6, "DELETE")]
    told(*late)
    done = world.run()
    assert done == {"people_changes": ("append", 2), **dict.fromkeys(kept, "maintain")}
    assert world.rows("people") == [(1, "Anna", 4)]
    assert world.rows("history") == history(came + late)
    # In any order, with repetitions, deletions of nothing and changes of what is not tracked.
    seed = random.randrange(1_000_000)
    chance = random.Random(seed)
    drawn = [
        (chance.randrange(4), chance.choice("xy"), chance.randrange(12), chance.choice(OPERATIONS))
        for _ in range(30)
    ]
    told(*drawn)
    assert world.run()["history"] == "maintain"
    assert world.rows("history") == history(came + late + drawn), f"seed {seed}"
