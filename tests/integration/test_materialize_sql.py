"""Materializations as a user writes them: SQL in, PostgreSQL, DuckDB, lakes and Parquet out.

One server process with real Spark, and a restart of it; a real PostgreSQL to deliver into.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.integration.materialize_lake import IcebergLake, read_table
from tests.integration.shared_location import Postgres

pytestmark = [pytest.mark.spark, pytest.mark.server]

WAIT_SECONDS = 120.0
THING = UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")


@contextmanager
def _served(data: Path) -> Iterator[psycopg.Connection[Any]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater", "serve", "--data", str(data), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("listening on "), line
        port = int(line.rsplit(":", 1)[1])
        address = f"host=127.0.0.1 port={port} user=headwater dbname=headwater"
        with psycopg.connect(address, autocommit=True) as db:
            yield db
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)
        process.stdout.close()


def _eventually(found: Callable[[], object], wanted: object) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while found() != wanted:
        assert time.monotonic() < deadline, found()
        time.sleep(0.1)


def test_sums_logs_rows_and_files(postgres: Postgres, tmp_path: Path) -> None:
    files, lake, iceberg = tmp_path / "files", tmp_path / "lake", IcebergLake(tmp_path / "ice")

    def in_the_lake(table: str, *columns: str) -> list[tuple[Any, ...]]:
        found = pa.table(DeltaTable(lake / table).scan(columns=list(columns)))
        return sorted(zip(*(found[c].to_pylist() for c in columns), strict=True))

    def delivered(columns: str, table: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres.dsn, autocommit=True) as endpoint:
            try:
                return sorted(
                    endpoint.execute(f"SELECT {columns} FROM sink.{table}".encode()).fetchall()
                )
            except psycopg.errors.UndefinedTable:
                return []

    def in_the_file(columns: str, table: str) -> list[tuple[Any, ...]]:
        try:
            with duckdb.connect(tmp_path / "e.duckdb", read_only=True) as endpoint:
                return sorted(endpoint.execute(f"SELECT {columns} FROM sink.{table}").fetchall())
        except (duckdb.IOException, duckdb.CatalogException):
            return []  # It is not there yet, or being written.

    with psycopg.connect(postgres.dsn, autocommit=True) as endpoint:
        endpoint.execute("CREATE SCHEMA sink")
    with _served(tmp_path / "data") as db:
        db.execute("CREATE TABLE events (id BIGINT, who TEXT, amount BIGINT)")
        db.execute("INSERT INTO events VALUES (1, 'a', 5), (2, 'a', 7), (3, 'b', -2)")
        db.execute("CREATE TABLE things (id UUID PRIMARY KEY, doc JSONB)")
        db.execute(f"INSERT INTO things VALUES ('{THING}', '{{\"a\": [1.50]}}')".encode())
        options = f"DSN '{postgres.dsn}', SCHEMA 'sink'"
        db.execute(
            f"CREATE MATERIALIZATION m INTO POSTGRES ({options}) ("
            'events AS "sink.rows" KEY (id), '
            'events AS "sink.sums" KEY (who) REDUCE (amount sum), '
            'things AS "sink.things" KEY (id), '
            'events AS "sink.log" KEY (id) DELTA UPDATES) WITH (SHARDS 2)'.encode()
        )
        db.execute(
            f"CREATE MATERIALIZATION f INTO PARQUET (URL '{files}') "
            "(events AS events KEY (id) DELTA UPDATES) WITH (SHARDS 2)".encode()
        )
        db.execute(
            f"CREATE MATERIALIZATION d INTO DELTA (PATH '{lake}') ("
            "events AS rows KEY (id) WITH (DOCUMENT 'doc'), "
            "events AS newest KEY (who) WITH (DUPLICATE_KEYS = 'last'), "
            "events AS sums KEY (who) REDUCE (amount sum)) "
            "WITH (DELETE 'soft', MIN_DURATION '50ms', SPILL_LIMIT '1MB')".encode()
        )
        db.execute(
            f"CREATE MATERIALIZATION k INTO DUCKDB (PATH '{tmp_path}/e.duckdb', SCHEMA 'sink') ("
            "events AS rows KEY (id), events AS sums KEY (who) REDUCE (amount sum), "
            "events AS log KEY (id) DELTA UPDATES) WITH (SHARDS 2)".encode()
        )
        db.execute(
            f"CREATE MATERIALIZATION i INTO ICEBERG (URI '{iceberg.config['uri']}', "
            f"WAREHOUSE '{iceberg.config['warehouse']}') ("
            'events AS "default.rows" KEY (id), events AS sums KEY (who) REDUCE (amount sum)) '
            "WITH (SHARDS 2)".encode()
        )
        _eventually(lambda: delivered("who, amount", "sums"), [("a", 12), ("b", -2)])
        # A client of the endpoint gets a UUID, and what the JSON says.
        _eventually(lambda: delivered("id, doc", "things"), [(THING, {"a": [1.5]})])
        db.execute("DELETE FROM events WHERE id = 3")
        db.execute("INSERT INTO events VALUES (4, 'a', 1)")
        _eventually(lambda: delivered("who, amount", "sums"), [("a", 13)])
        _eventually(lambda: delivered("shards, aligned", "headwater_status"), [(2, True)])
        db.execute("ALTER MATERIALIZATION m SET (SHARDS 3)")
    with _served(tmp_path / "data") as db:
        db.execute("INSERT INTO events VALUES (5, 'c', 1)")
        _eventually(lambda: delivered("who, amount", "sums"), [("a", 13), ("c", 1)])
        _eventually(lambda: delivered("shards, aligned", "headwater_status"), [(3, True)])
        shown = "SELECT shards, aligned FROM hw_materializations WHERE name = 'm'"
        _eventually(lambda: db.execute(shown).fetchall(), [(3, True)])
        each = "SELECT status FROM hw_materialization_shards WHERE name = 'm'"
        _eventually(lambda: db.execute(each).fetchall(), [("running",)] * 3)
        db.execute("ALTER MATERIALIZATION f SET (SHARDS 1)")
        assert delivered("id, who, amount", "rows") == [
            (1, "a", 5), (2, "a", 7), (4, "a", 1), (5, "c", 1)
        ]  # fmt: skip
        log = [(1, "c"), (2, "c"), (3, "c"), (3, "d"), (4, "c"), (5, "c")]
        assert delivered('id, "_meta/op"', "log") == log

        def in_files() -> list[tuple[Any, ...]]:
            found = [pq.read_table(path).to_pylist() for path in files.glob("events/**/*.parquet")]
            return sorted((row["id"], row["_meta/op"]) for rows in found for row in rows)

        _eventually(in_files, log)
        _eventually(lambda: in_the_file("who, amount", "sums"), [("a", 13), ("c", 1)])
        _eventually(lambda: in_the_file('id, "_meta/op"', "log"), log)
        _eventually(lambda: in_the_file("shards, aligned", "headwater_status"), [(2, True)])
        _eventually(lambda: read_table(iceberg, "sums", "who", "amount"), [("a", 13), ("c", 1)])
        _eventually(lambda: read_table(iceberg, "rows", "id"), [(1,), (2,), (4,), (5,)])
        sums = [("a", 13, "u"), ("b", 0, "d"), ("c", 1, "c")]
        _eventually(lambda: in_the_lake("sums", "who", "amount", "_meta/op"), sums)
        rows = [(1, "a", "c"), (2, "a", "c"), (3, "b", "d"), (4, "a", "c"), (5, "c", "c")]
        _eventually(lambda: in_the_lake("rows", "id", "who", "_meta/op"), rows)
        newest = [("a", 4, "u"), ("b", 3, "d"), ("c", 5, "c")]
        _eventually(lambda: in_the_lake("newest", "who", "id", "_meta/op"), newest)
        documents = [json.loads(doc) for (doc,) in in_the_lake("rows", "doc")]
        assert sorted(document["id"] for document in documents) == [1, 2, 3, 4, 5]
        db.execute("ALTER MATERIALIZATION d SET (MIN_DURATION '1s', MAX_DURATION '1h')")
        with pytest.raises(psycopg.errors.InvalidTableDefinition, match="DELETE cannot be changed"):
            db.execute("ALTER MATERIALIZATION d SET (DELETE 'hard')")
        # Shards as tasks of Spark: as many as half of its slots, and the same is delivered.
        db.execute("ALTER MATERIALIZATION m SET (SHARDS_IN 'tasks')")
        where = "SELECT count(*) >= 2 FROM hw_materialization_shards WHERE runs_in = 'task'"
        _eventually(lambda: db.execute(where).fetchall(), [(True,)])
        db.execute("INSERT INTO events VALUES (6, 'c', 2), (7, 'd', 1)")
        db.execute("DELETE FROM events WHERE id = 5")
        _eventually(lambda: delivered("who, amount", "sums"), [("a", 13), ("c", 2), ("d", 1)])
        log += [(5, "d"), (6, "c"), (7, "c")]
        _eventually(lambda: delivered('id, "_meta/op"', "log"), sorted(log))
        with pytest.raises(psycopg.errors.InvalidTableDefinition, match="'threads' nor 'tasks'"):
            db.execute("ALTER MATERIALIZATION m SET (SHARDS_IN 'processes')")
