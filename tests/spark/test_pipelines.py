"""Projects for Spark Declarative Pipelines, run on a location: exact, incremental, and refused."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pyspark.pipelines.init_cli import init
from typer.testing import CliRunner

from headwater.adapter import catalog
from headwater.base.clock import ManualClock
from headwater.base.errors import HeadwaterError
from headwater.cli.main import app
from headwater.compute.declared.elements import MistakeInProject
from headwater.pipelines import feeds
from headwater.pipelines.ledger import FLOWS
from headwater.pipelines.plan import Selection
from tests.spark import pipeline_world
from tests.spark.pipeline_world import SPEC, World

pytestmark = pytest.mark.spark

world = pipeline_world.world


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
