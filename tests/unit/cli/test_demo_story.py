"""What the demo defines is what the parser takes, and its figures are right."""

from __future__ import annotations

import io

from rich.console import Console

from headwater.adapter.sql.parse import parse
from headwater.cli.demo import say_to_copy
from headwater.cli.demo_story import KEYS, QUERIES, definitions, percentile


def test_every_statement_of_the_demo_parses() -> None:
    made = definitions(10, "postgresql://postgres:@/postgres?host=/a/b")
    kinds = [type(parse(text)[0]).__name__ for text in made]
    assert kinds == ["CreateSource", *["CreateMaterializedView"] * 3, "CreateMaterialization"]
    assert "TICK INTERVAL '100ms'" in made[0]
    assert set(KEYS) == set(QUERIES)


def test_percentiles() -> None:
    assert percentile([], 0.5) == 0
    assert percentile([7], 0.99) == 7
    assert percentile(list(range(1000)), 0.99) == 990


def test_a_line_to_copy_is_one_line_on_a_narrow_terminal() -> None:
    shown = io.StringIO()
    line = "psql 'postgresql://postgres:@/postgres?host=/srv/[1] demo/postgres'"
    say_to_copy(Console(file=shown, width=20), "  delivered ", line)
    assert shown.getvalue() == f"  delivered {line}\n"
