"""A backup goes into a bucket and a PostgreSQL, and back out of them, by the commands for it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.client import open_location
from tests.integration.shared_location import SharedLocation

pytestmark = pytest.mark.server

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
ROWS = 20_000
"""So many become an object; one row stays in the log."""


def _run(*arguments: object) -> dict[str, int]:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_from_a_directory_into_services_and_back(location: SharedLocation, tmp_path: Path) -> None:
    with open_location(tmp_path / "data", layouts=LAYOUTS) as client:
        write, _ = client.create_or_load("c", SCHEMA)
        many = [({"k": n, "v": f"value {n % 97}"}, 0, 1) for n in range(ROWS)]
        write.compare_and_append(many, 0, 1).result()
        write.compare_and_append([({"k": -1, "v": None}, 1, 1)], 1, 2).result()
    to = ("--blob", location.blob, "--consensus", location.consensus)
    _run("backup", tmp_path / "data", "--to", tmp_path / "backup")
    restored = _run("restore", tmp_path / "backup", *to)
    assert restored["entries"] > 0
    with location.open(layouts=LAYOUTS, take_over=True) as client:
        write, read = client.create_or_load("c", SCHEMA)
        assert read.snapshot(1).to_table().num_rows == ROWS + 1
        assert read.snapshot(0).to_table().num_rows == ROWS
        write.compare_and_append([({"k": -2, "v": "later"}, 2, 1)], 2, 3).result()
    again = CliRunner().invoke(app, ["restore", str(tmp_path / "backup"), *to])
    assert again.exit_code != 0, "what exists is not overwritten"
    assert "Traceback" not in again.output
    _run("backup", *to, "--to", tmp_path / "second")
    with open_location(tmp_path / "second", read_only=True, layouts=LAYOUTS) as client:
        assert client.reader("c").snapshot(2).to_table().num_rows == ROWS + 2
