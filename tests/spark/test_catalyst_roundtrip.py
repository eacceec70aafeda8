"""A query and the plan compiled from it have the same rows and the same types, on random rows.

The plan is compiled where the relations are empty, and it goes through its bytes before it is run.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.catalyst.query_session import AS_PLANNED
from headwater.compute.catalyst.render import execute
from headwater.compute.ir.plan import decoded, encoded
from headwater.testing.few_rows import for_few_rows
from tests.queries.tables import SUITES, queries, schemas, tables

pytestmark = pytest.mark.spark

SEED_USUAL = 7
SEED = int(os.environ.get("CATALYST_SEED", str(SEED_USUAL)))
CASES = [(suite, name) for suite in SUITES for name in queries(suite)]
MAY_BE_EMPTY = {
    "group_literal",
    "limit_zero",
    "not_in",  # a NULL on the right: nothing is certainly not in it
    "not_in_tuple",
    "range_empty",
    "uncorrelated_exists",
}


@dataclass
class Place:
    """A workspace to compile in, and a session in which the relations have rows."""

    workspace: Workspace
    session: Any
    frames: dict[str, Any]


@pytest.fixture(scope="module")
def places(spark: Any) -> dict[str, Place]:
    print(f"seed {SEED}")
    found: dict[str, Place] = {}
    for suite in SUITES:
        session = for_few_rows(spark.newSession())
        frames = {n: session.createDataFrame(t) for n, t in tables(suite, SEED).items()}
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        found[suite] = Place(Workspace(spark, schemas(suite)), session, frames)
    return found


def comparable(value: Any) -> Any:
    """Return a value that can be counted; floats to 12 digits, ours being rounded otherwise."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else float(f"{value:.12g}")
        case list() | tuple():
            return tuple(map(comparable, value))
        case dict():
            return tuple(sorted((key, comparable(item)) for key, item in value.items()))
        case _:
            return value


def rows_of(frame: Any) -> Counter[Any]:
    return Counter(comparable(row) for row in frame.collect())


def types_of(frame: Any) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in frame.schema]


@pytest.mark.parametrize(("suite", "name"), CASES, ids=lambda value: value)
def test_a_plan_has_the_rows_of_its_query(places: dict[str, Place], suite: str, name: str) -> None:
    place, text = places[suite], queries(suite)[name]
    plan = place.workspace.compile_sql(text)
    asked = place.session.sql(text)
    expected = rows_of(asked)
    try:
        answered = execute(place.session, decoded(encoded(plan)), place.frames)
        assert types_of(answered) == types_of(asked)
        assert rows_of(answered) == expected
    finally:  # Spark chooses between equals by its plan: the next query is asked as it is.
        for key in AS_PLANNED:
            place.session.conf.unset(key)
    if SEED == SEED_USUAL:
        assert expected or name in MAY_BE_EMPTY, "a query without rows proves nothing"


def test_what_is_shown_is_in_its_order(places: dict[str, Place]) -> None:
    place = places["extra"]
    for text in (
        "SELECT c FROM u ORDER BY k DESC",
        "SELECT k + 1 AS n FROM u ORDER BY c, -k LIMIT 9",
    ):
        plan = place.workspace.compile_sql(text)
        answered = execute(place.session, plan, place.frames).collect()
        assert answered == place.session.sql(text).collect()


def test_two_rows_for_a_scalar_are_an_error_only_where_they_are_asked_for(
    places: dict[str, Place],
) -> None:
    place = places["extra"]
    for text in (
        "SELECT k, (SELECT b FROM t) FROM u",
        "SELECT k, (SELECT b FROM t WHERE t.a = u.a) FROM u",
    ):
        plan = place.workspace.compile_sql(text)
        with pytest.raises(Exception, match="more than one row"):
            execute(place.session, plan, place.frames).collect()
        with pytest.raises(Exception, match="SCALAR_SUBQUERY_TOO_MANY_ROWS"):
            place.session.sql(text).collect()
    none = "SELECT k, (SELECT b FROM t WHERE t.a = u.a) FROM u WHERE a = -1"
    plan = place.workspace.compile_sql(none)
    assert execute(place.session, plan, place.frames).collect() == []
