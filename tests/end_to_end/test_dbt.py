"""dbt, unmodified: ``seed``, ``run``, ``test``, full refreshes; views, materialized views, tables.

dbt lives in an environment of its own (``make dbt``): what it pins contradicts what we use.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from tests.end_to_end.client_door import Door, open_door

pytestmark = pytest.mark.server

DBT_PYTHON = Path(__file__).parents[2] / "build" / "dbt" / "bin" / "python"
PROJECT = Path(__file__).parent / "dbt_project"
# One process for all commands: most of what one costs is starting.
INVOKE = """
import sys
from dbt.cli.main import dbtRunner
runner = dbtRunner()
for command in sys.argv[1:]:
    done = runner.invoke([*command.split(), "--no-use-colors"])
    if not done.success:
        sys.exit(f"dbt {command} failed: {done.exception or [r.message for r in done.result]}")
"""


def dbt(door: Door, project: Path, *commands: str) -> str:
    surroundings = {name: v for name, v in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(DBT_PYTHON), "-c", INVOKE, *commands],
        cwd=project,
        env={
            **surroundings,
            "DBT_PROFILES_DIR": str(project),
            "HEADWATER_HOST": door.wire.host,
            "HEADWATER_PORT": str(door.wire.port),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_dbt(tmp_path: Path) -> None:
    if not DBT_PYTHON.exists():
        pytest.skip("dbt is not on this machine (make dbt)")
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    with open_door() as door, door.connect() as connection:
        connection.execute(
            "CREATE TABLE dbt_orders (id bigint PRIMARY KEY, who text, amount bigint)"
        )
        connection.execute("INSERT INTO dbt_orders VALUES (1, 'a', 5), (2, 'a', 20), (3, 'b', 30)")

        def rows(relation: str) -> list[tuple[object, ...]]:
            return sorted(connection.execute(f"SELECT * FROM {relation}").fetchall(), key=repr)

        printed = dbt(door, project, "seed", "run", "seed", "run", "test")
        assert printed.count("PASS=1 WARN=0 ERROR=0 SKIP=0") == 2  # seeds
        assert printed.count("PASS=4 WARN=0 ERROR=0 SKIP=0") == 3  # models, tests
        assert "REFRESH MATERIALIZED VIEW" in printed  # The second time there is nothing to make.
        assert rows("countries") == [
            ("de", "Germany", 1.5, date(2026, 1, 2)),
            ("fr", "France", 0.25, date(2026, 3, 4)),
            ('x"y', "a, b", None, None),
        ]
        # A table is what it was when it was made, in a schema of its own that dbt has made.
        assert rows("public_marts.frozen") == [("a", 1, 20), ("b", 1, 30)]
        assert rows("big_orders") == [(2, "a", 20), (3, "b", 30)]
        assert rows("totals") == [("a", Decimal(20), 1), ("b", Decimal(30), 1)]
        connection.execute("INSERT INTO dbt_orders VALUES (4, 'b', 100)")
        assert rows("totals") == [("a", Decimal(20), 1), ("b", Decimal(130), 2)]
        assert rows("largest") == [("a", 20), ("b", 100)]
        assert "Orders that are worth a look." in door.psql(r"\dv+")
        assert rows("public_marts.frozen") == [("a", 1, 20), ("b", 1, 30)]
        dbt(door, project, "run --full-refresh")
        assert rows("totals") == [("a", Decimal(20), 1), ("b", Decimal(130), 2)]
        assert rows("largest") == [("a", 20), ("b", 100)]
        assert rows("public_marts.frozen") == [("a", 1, 20), ("b", 2, 100)]
        left = door.psql(r"\d", r"\d public_marts.*")
        assert "dbt_tmp" not in left
        assert "dbt_backup" not in left
