"""Projects for Spark Declarative Pipelines, run on a location: exact, incremental, and once."""

from __future__ import annotations

import random
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.pipelines.init_cli import init
from typer.testing import CliRunner

from headwater import api
from headwater.adapter import catalog, replacement
from headwater.api import Database
from headwater.base.clock import ManualClock
from headwater.base.errors import HeadwaterError
from headwater.cli.main import app
from headwater.compute.declared.elements import MistakeInProject
from headwater.pipelines import feeds, sinks, spec
from headwater.pipelines.ledger import FLOWS
from headwater.pipelines.plan import Selection
from headwater.pipelines.run import Pipeline

pytestmark = pytest.mark.spark

SPEC = """
name: shop
storage: kept
database: sales
configuration: {shop.least: "2"}
libraries:
  - glob: {include: definitions/**}
"""


class World:
    """A project and a location, in the Spark of all tests."""

    def __init__(self, root: Path, database: Database) -> None:
        self.root = root
        self.database = database

    def write(self, name: str, text: str) -> None:
        write(self.root / name, text)

    def loaded(self) -> Pipeline:
        file = self.root / "spark-pipeline.yml"
        pipeline = Pipeline(spec.load(file), self.database, self.database.engine.spark)
        pipeline.load()
        return pipeline

    def check(self, selection: Selection | None = None) -> dict[str, str]:
        made = self.loaded().decisions(selection or Selection())
        return {each.name: each.action for each in made}

    def run(self, selection: Selection | None = None) -> dict[str, Any]:
        done = self.loaded().run(selection or Selection())
        return {
            each.decision.name: (each.decision.action, each.rows)
            if each.rows is not None
            else each.decision.action
            for each in done
        }

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted(self.database.relation(name).fetchall(), key=_in_order)

    def collections(self) -> dict[str, str]:
        state = self.database.state()
        return {each.name: each.collection for each in catalog.objects(state)}


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _in_order(row: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in row]


@pytest.fixture
def world(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    # What is replaced goes at once; nobody else reads it.
    monkeypatch.setattr(replacement, "GRACE_SECONDS", 0.0)
    with api.open(tmp_path / "data", writable=True, spark=spark, timeout_s=0) as database:
        yield World(tmp_path / "project", database)


def test_the_project_that_spark_pipelines_makes(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    init("project")
    capsys.readouterr()
    names = ("example_python_materialized_view", "example_sql_materialized_view")
    assert world.check() == dict.fromkeys(names, "create")
    assert world.database.tables() == [], "a check changes nothing"
    assert world.run() == dict.fromkeys(names, "create")
    assert world.rows(names[0]) == [(number,) for number in range(10)]
    assert world.rows(names[1]) == [(number,) for number in range(0, 10, 2)]
    before = world.collections()
    assert world.run() == dict.fromkeys(names, "keep")
    assert world.collections() == before


PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as f

spark = SparkSession.active()
least = int(spark.conf.get("shop.least"))

@dp.table(comment="every order that came, for ever")
def raw():
    return spark.readStream.table("sales.orders").where(f.col("k") < 100)

dp.create_streaming_table("log", schema="k BIGINT, region STRING, seen STRING")

@dp.append_flow(target="log")
def of_orders():
    regions = spark.read.csv("files/regions", header=True)
    joined = spark.readStream.table("raw").join(regions, "region")
    return joined.select("k", "region", f.lit("order").alias("seen"))

@dp.append_flow(target="log")
def of_files():
    return spark.readStream.schema("k BIGINT, region STRING").csv("files/log", header=True)

@dp.table
def ticks():
    told = spark.readStream.format("rate").option("rowsPerSecond", 2).load()
    return told.where("value > 0").selectExpr("value", "unix_millis(timestamp) AS ms")

@dp.temporary_view
def large():
    return spark.table("orders").where(f.col("k") >= least)

@dp.materialized_view
def by_region():
    names = spark.read.csv("files/regions", header=True)
    return spark.read.table("large").join(names, "region").groupBy("name").count()
"""
SQL = """
CREATE MATERIALIZED VIEW totals AS
SELECT region, count(*) AS n FROM sales.log GROUP BY region;
CREATE MATERIALIZED VIEW busiest AS SELECT max(n) AS n FROM totals;
"""


def test_a_project_of_every_kind_of_dataset(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(1_000)
    monkeypatch.setattr(feeds, "SystemClock", lambda: clock)
    world.write("spark-pipeline.yml", SPEC)
    world.write("definitions/a.py", PYTHON)
    world.write("definitions/more/b.sql", SQL)
    world.write("files/regions/1.csv", "region,name\neu,Europe\nus,America\n")
    world.write("files/log/1.csv", "k,region\n50,eu\n")
    sql = world.database.sql
    sql("CREATE TABLE orders (k bigint PRIMARY KEY, region text)")
    sql("INSERT INTO orders VALUES (1, 'eu'), (2, 'eu'), (3, 'us'), (100, 'us')")

    first = world.run()
    assert first == {
        "raw": ("create", 3),
        "log": ("create", 4),
        "ticks": ("create", 0),
        "by_region": ("create", 2),
        "totals": "create",
        "busiest": "create",
    }
    assert world.rows("by_region") == [("America", 2), ("Europe", 1)]
    assert world.rows("log") == [
        *((1, "eu", "order"), (2, "eu", "order"), (3, "us", "order"), (50, "eu", None))
    ]
    assert world.rows("totals") == [("eu", 3), ("us", 1)]
    assert world.rows("busiest") == [(3,)]
    state = world.database.state()
    assert catalog.named(state, "raw").comment == "every order that came, for ever"

    # Nothing new: nothing is done.
    before = world.collections()
    flows = world.rows(FLOWS)
    assert set(world.run().values()) == {"keep"}
    assert world.collections() == before
    assert world.rows(FLOWS) == flows

    # Rows come and go, files come and change. Deletions are no part of a stream.
    sql("DELETE FROM orders WHERE k = 1")
    sql("UPDATE orders SET region = 'us' WHERE k = 2")
    sql("INSERT INTO orders VALUES (4, 'eu')")
    clock.set(3_999)
    world.write("files/log/2.csv", "k,region\n51,us\n52,us\n")
    world.write("files/regions/1.csv", "region,name\neu,Europe\nus,USA\n")
    assert world.run() == {
        "raw": ("append", 2),
        "log": ("append", 4),
        "ticks": ("append", 3),
        "by_region": ("maintain", 2),
        "totals": "maintain",
        "busiest": "maintain",
    }
    assert world.collections() == before, "everything was kept, nothing made anew"
    assert world.rows("raw") == [(1, "eu"), (2, "eu"), (2, "us"), (3, "us"), (4, "eu")]
    assert world.rows("by_region") == [("Europe", 1), ("USA", 3)]
    assert world.rows("totals") == [("eu", 4), ("us", 4)]
    assert world.rows("ticks") == [(1, 1_500), (2, 2_000), (3, 2_500)]

    # Another definition: replaced, and what reads it with it; the rest is left alone.
    sql("CREATE INDEX by_name ON totals (region)")
    world.write("definitions/more/b.sql", SQL.replace("count(*)", "count(*) + 1"))
    assert world.run(Selection(refresh=("totals",))) == {
        "raw": "skip",
        "log": "skip",
        "ticks": "skip",
        "by_region": "skip",
        "totals": "replace",
        "busiest": "rebuild",
    }
    assert world.rows("busiest") == [(5,)]
    assert sql("SELECT n FROM totals WHERE region = 'eu'").fetchall() == [(5,)]
    after = world.collections()
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"totals", "busiest", "by_name"}

    # In full: what the inputs have now, once. Other columns: who reads them is made again.
    world.write(
        "definitions/more/b.sql",
        SQL.replace("AS n FROM sales", "AS m FROM sales").replace("max(n)", "max(m)"),
    )
    done = world.run(Selection(refresh=("totals", "busiest"), full=("raw", "log", "ticks")))
    assert done["ticks"] == ("refill", 0), "it begins again with now"
    assert done["raw"] == ("refill", 3)
    assert done["log"] == ("refill", 6)
    assert (done["totals"], done["busiest"]) == ("replace", "rebuild")
    assert world.rows("raw") == [(2, "us"), (3, "us"), (4, "eu")]
    assert world.rows("totals") == [("eu", 2), ("us", 4)]
    assert world.rows("busiest") == [(4,)]
    kept = world.collections()
    assert all(kept[name] == after[name] for name in ("raw", "log", "by_region"))


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
    ordered = sorted(events, key=_in_order, reverse=True)  # Of equal ones the first counts.
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
    return sorted(made, key=_in_order)


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


MISTAKES = [
    ("x = 1 / 0", "definitions/a.py, line 2: ZeroDivisionError: division by zero"),
    ("def (", "definitions/a.py, line 2: SyntaxError"),
    ("@dp.materialized_view\ndef a():\n    return spark.table('nowhere')", "'nowhere'"),
    ("@dp.materialized_view\ndef a():\n    return 3", "returned a int; return a DataFrame"),
    ("@dp.materialized_view\ndef a():\n    return spark.range(3).nothing", "line 4:"),
    ("@dp.materialized_view\ndef a():\n    return spark.sql('SELECT no')", "line 4"),
    (
        "@dp.materialized_view\ndef a():\n    spark.table('orders').count()",
        "DataFrame.count runs a job",
    ),
    (
        "@dp.materialized_view\ndef a():\n    return spark.readStream.table('orders')",
        "materialized view 'a' reads a stream",
    ),
    ("@dp.table\ndef a():\n    return spark.table('orders')", "a streaming table without a stream"),
    (
        "@dp.table\ndef a():\n    return spark.readStream.table('orders').groupBy('k').count()",
        "aggregate over a stream",
    ),
    (
        (
            "@dp.table\ndef a():\n    s = spark.readStream.table('orders')\n    return s.unionAll("
            "spark.table('orders'))"
        ),
        "a union of a stream and a relation",
    ),
    (
        (
            "@dp.table\ndef a():\n    s = spark.readStream.table('orders')\n"
            "    return spark.table('orders').join(s, 'k', 'left').select('k')"
        ),
        "a left join that keeps rows",
    ),
    (
        (
            "@dp.table\ndef a():\n    numbers = spark.readStream.format('rate-micro-batch')\n"
            "    return numbers.option('rowsPerBatch', 1).load()"
        ),
        "files, Kafka, rate and relations of Headwater are read as streams",
    ),
    (
        "@dp.table\ndef a():\n    return spark.readStream.format('kafka').load()",
        "it lacks the option 'kafka.bootstrap.servers'",
    ),
    (
        (
            "r = spark.readStream.format('rate')\n@dp.table\ndef a():\n    return r.load()\n"
            "@dp.table\ndef b():\n    return r.option('rampUpTime', '0s').load()"
        ),
        "the same stream is read elsewhere in the project with other options",
    ),
    (
        (
            "@dp.materialized_view(spark_conf={'spark.sql.ansi.enabled': 'false'})\n"
            "def a():\n    return spark.range(1)"
        ),
        "spark.sql.ansi.enabled decides what queries mean",
    ),
    (
        (
            "dp.create_streaming_table('a')\n"
            "dp.create_auto_cdc_flow('a', 'orders', ['k'], 'k', stored_as_scd_type=3)"
        ),
        "there is no SCD type 3",
    ),
    (
        (
            "dp.create_streaming_table('a')\n"
            "dp.create_auto_cdc_flow('a', 'orders', ['k'], 'k', stored_as_scd_type=2,\n"
            "    column_list=['k'], track_history_except_column_list=['v'])"
        ),
        "`v` cannot be resolved",
    ),
    (
        (
            "dp.create_sink('a', 'csv')\n"
            "@dp.append_flow(target='a')\ndef f():\n    return spark.readStream.table('orders')"
        ),
        'format csv needs the option "path"',
    ),
    ("@dp.materialized_view\ndef orders():\n    return spark.range(1)", "is no pipeline's"),
]


def test_mistakes_are_told_with_their_place(world: World) -> None:
    world.write("spark-pipeline.yml", SPEC)
    world.database.sql("CREATE TABLE orders (k bigint)")
    for text, told in MISTAKES:
        world.write("definitions/a.py", f"from pyspark import pipelines as dp\n{text}")
        with pytest.raises(HeadwaterError) as raised:
            world.check()
        assert told in str(raised.value)
        if isinstance(raised.value, MistakeInProject):
            assert str(raised.value).startswith("definitions/a.py"), raised.value


PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipelines.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_the_page(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written, commands run, and what is shown is what they print."""
    assert spark is not None, "the commands take the Spark that the process has"
    monkeypatch.chdir(tmp_path)
    printed, compared = "", 0
    for language, title, text in BLOCK.findall(PAGE.read_text("utf-8")):
        if title:
            file = tmp_path / title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        elif language == "sh":
            printed = ""
            for line in text.splitlines():
                command, *arguments = shlex.split(line)
                assert command == "headwater"
                result = CliRunner().invoke(app, arguments)
                assert result.exit_code == 0, result.output
                printed += result.stdout
        else:
            for line in text.splitlines():
                assert line in printed, printed
                compared += 1
    assert compared == 4
