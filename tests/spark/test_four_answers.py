"""One answer, whichever way one asks: ad hoc, hydrated, maintained, PostgreSQL's own.

Queries at random (``headwater.testing.answers``) in a process of their own, with a Spark that is
told that rows are few; those that were wrong once; the table of what is known to differ; and a
defect planted in each of the four ways, which has to be found.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.adapter.dialect import query as dialect_query
from headwater.compute import maintained
from headwater.compute.catalyst import ordered
from headwater.persist.client import Client
from headwater.testing.answers.answer import Failed, ask
from headwater.testing.answers.batch import Report, run
from headwater.testing.answers.differences import DIFFERENCES, Difference
from headwater.testing.answers.queries import Query
from headwater.testing.answers.served import Servers, served
from headwater.testing.answers.world import World

pytestmark = [pytest.mark.spark, pytest.mark.server]

SEED = os.environ.get("HEADWATER_SEED", "20261119")
QUERIES = int(os.environ.get("HEADWATER_QUERIES", "300"))
RUN_MAX = 0.9
"""How many of the queries have to run all four ways: what is refused is no agreement."""
DIFFERENCES_MAX = 40
ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "queries" / "four_answers.sql"
PAGE = ROOT / "docs" / "sql" / "differences.md"


@pytest.fixture
def servers(spark: Any, client: Client) -> Iterator[Servers]:
    with served(spark, client) as found:
        yield found


def corpus() -> list[Query]:
    text = "\n".join(
        line for line in CORPUS.read_text("utf-8").splitlines() if not line.startswith("--")
    )
    return [Query(each.strip(), is_ordered=False) for each in text.split(";") if each.strip()]


def asked(servers: Servers, queries: list[Query], worlds: int = 1) -> Report:
    report = Report()
    for number in range(worlds):
        report.add(run(servers, World(Random(f"corpus {number}")).script(), queries))
    print(report)
    return report


@pytest.mark.timeout(1_800)  # Each finding is made small, which takes a minute.
def test_random_queries_have_one_answer() -> None:
    counted = _counted(QUERIES, SEED)
    assert counted["differ"] == 0
    assert counted["ran"] >= RUN_MAX * counted["asked"] > 0


@pytest.mark.soak
@pytest.mark.timeout(86_400)
def test_many_random_queries_have_one_answer() -> None:
    counted = _counted(20_000, os.environ.get("HEADWATER_SEED", ""))
    assert counted["differ"] == 0
    assert counted["ran"] >= RUN_MAX * counted["asked"] > 0


def _counted(queries: int, seed: str) -> dict[str, int]:
    """Ask in a process of its own; return what it counted."""
    command = [sys.executable, "-m", "headwater.testing.answers", "--queries", str(queries)]
    told = subprocess.run(
        [*command, *(["--seed", seed] if seed else [])],
        capture_output=True,
        text=True,
        timeout=None,
        check=False,
        cwd=ROOT,
        # What the JVMs of short tests are told makes one slower that has thousands of queries.
        env={name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"},
    )
    print(told.stdout[-20_000:], told.stderr[-5_000:])
    found = re.search(
        r"(\d+) queries, (\d+) ran on all four, (\d+) differ, (\d+) in a way", told.stdout
    )
    assert found is not None, "it did not come to its end"
    names = ("asked", "ran", "differ", "known")
    return dict(zip(names, map(int, found.groups()), strict=True))


def test_what_was_wrong_once(servers: Servers) -> None:
    report = asked(servers, corpus(), worlds=2)
    assert not report.findings
    assert report.compared == report.asked


@pytest.mark.parametrize("entry", DIFFERENCES, ids=lambda entry: entry.construct)
def test_what_is_known_to_differ_does(servers: Servers, entry: Difference) -> None:
    assert entry.ours != entry.theirs
    with servers.batch():
        for statement in entry.given:
            servers.both(statement)
        assert _value(servers.ours, entry.example) == entry.ours
        assert _value(servers.theirs, entry.example) == entry.theirs


def _value(connection: Any, sql: str) -> str | None:
    found = ask(connection, sql)
    if isinstance(found, Failed):
        return found.sqlstate
    ((value,),) = found.rows
    return value


def test_the_page_has_the_table() -> None:
    """``REWRITE=1`` writes it there."""
    lines = ["| construct | example | here | PostgreSQL | why |", "|---|---|---|---|---|"]
    lines += [
        f"| {each.construct} | `{each.example}` | `{each.ours}` | `{each.theirs}` | {each.reason} |"
        for each in DIFFERENCES
    ]
    text = PAGE.read_text("utf-8")
    above = text[: text.index("| construct")] if "| construct" in text else text
    wanted = above + "\n".join(lines) + "\n"
    if os.environ.get("REWRITE"):
        PAGE.write_text(wanted, "utf-8")
    assert PAGE.read_text("utf-8") == wanted
    assert len({each.construct for each in DIFFERENCES}) == len(DIFFERENCES) <= DIFFERENCES_MAX


# ---- planted defects -----------------------------------------------------------------------------


def test_a_defect_of_queries_is_found(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    aggregate = ordered.aggregate

    def planted(node: Any, source: str) -> str:
        if node.groups or node.calls:
            return aggregate(node, source)
        return f"SELECT true AS _nothing_0 FROM {source}"

    monkeypatch.setattr(ordered, "aggregate", planted)
    assert {each.way for each in asked(servers, corpus()[:4]).findings} == {"ad hoc"}


@pytest.mark.parametrize("hydrating", [True, False])
def test_a_defect_of_views_is_found(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, hydrating: bool
) -> None:
    cut: Callable[..., Any] = vars(maintained)["cut"]

    def planted(*arguments: Any, **told: Any) -> Any:
        """Lose what a step is to read, of first steps or of those after them."""
        data, errors = cut(*arguments, **told)
        lost = told["hydrating"] == hydrating
        return (dataclasses.replace(data, parts=()) if lost else data), errors

    monkeypatch.setattr(maintained, cut.__name__, planted)
    queries = [Query(f"SELECT count(*) AS c1 FROM {table}", False) for table in "tuv"]
    ways = {each.way for each in asked(servers, queries, worlds=2).findings}
    assert ("hydrated" in ways) == hydrating
    assert "maintained" in ways
    assert "ad hoc" not in ways


def test_a_defect_of_the_dialect_is_found(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of ours agree, and PostgreSQL does not."""
    text = dialect_query.QueryTranslator.query

    def planted(*arguments: Any, **told: Any) -> Any:
        found, columns = text(*arguments, **told)
        return found.replace("NULLS LAST", "NULLS FIRST"), columns

    monkeypatch.setattr(dialect_query.QueryTranslator, "query", planted)
    ordered_ = "SELECT y AS c1, row_number() OVER (ORDER BY y, k, h, d, ts, tz) AS c2 FROM u"
    found = asked(servers, [Query(ordered_, is_ordered=False)], worlds=4).findings
    assert {each.way for each in found} == {"hydrated", "maintained", "ad hoc"}
