"""An answer over a window that does not fit its type: an error of the view, at its times alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Context, Decimal
from functools import reduce
from operator import and_, or_
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.compute.catalyst import try_eval
from headwater.compute.catalyst.ordered import WHOLE
from headwater.compute.controller import ViewController
from headwater.compute.dataflow.lower_overflow import judged
from headwater.compute.dataflow.passage import TRY
from headwater.compute.ir.expression import Expression, WindowCall
from headwater.compute.maintained import MaintainedView
from headwater.persist.client import Client
from headwater.persist.errors import CollectionHasErrors
from headwater.persist.state import violations
from headwater.testing.random_views import step_together
from tests.unit.compute import model

pytestmark = pytest.mark.spark

LONG = 2**63
WIDE = 10**38
NEAR, THIRD = (Decimal(f"{digit * 32}.{digit * 6}") for digit in "93")
EXACT = Context(prec=80)
DAY = timedelta(days=1)
LONGEST = timedelta(microseconds=2**63 - 1)

SCHEMA = pa.schema(
    [
        ("g", pa.string()),
        ("x", pa.int64()),
        ("d", pa.decimal128(38, 6)),
        ("e", pa.decimal128(38, 0)),
        ("i", pa.duration("us")),
        ("f", pa.int32()),
    ]
)

RUNNING = "OVER (PARTITION BY g ORDER BY x ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
THEN = (
    "count(*) OVER (PARTITION BY g ORDER BY {} RANGE BETWEEN INTERVAL '0.000005' SECOND PRECEDING "
    "AND INTERVAL '0.000007' SECOND FOLLOWING)"
)
QUERIES = {
    "whole": "SELECT g, x, sum(x) OVER (PARTITION BY g) AS s FROM t",
    "running": f"SELECT g, x, sum(x) {RUNNING} AS s, count(*) {RUNNING} AS n FROM t",
    "decimals": "SELECT g, sum(d) OVER (PARTITION BY g) AS s, sum(e) OVER () AS r FROM t",
    "intervals": "SELECT g, sum(i) OVER (PARTITION BY g) AS s, avg(i) OVER (PARTITION BY g) AS a "
    "FROM t",
    "averages": "SELECT g, avg(d) OVER (PARTITION BY g) AS a FROM t",
    "pairs": "SELECT g, regr_avgx(x, d) OVER (PARTITION BY g) AS a FROM t",
    "near": "SELECT g, x, count(*) OVER (PARTITION BY g ORDER BY x RANGE BETWEEN 5 PRECEDING "
    "AND 7 FOLLOWING) AS n FROM t",
    "then": f"SELECT g, x, {THEN.format('t')} AS n, {THEN.format('z')} AS z, "
    f"{THEN.format('i')} AS i FROM (SELECT g, x, timestamp_micros(x) AS t, "
    "CAST(timestamp_micros(x) AS TIMESTAMP_NTZ) AS z, x * INTERVAL '0.000001' SECOND AS i FROM t)",
    "often": "SELECT g, percentile(x, 1, f) FILTER (WHERE x > -8) OVER (PARTITION BY g) AS p "
    "FROM t",
    "some": "SELECT g, sum(x) FILTER (WHERE x > 0) OVER (PARTITION BY g) AS s FROM t",
    "grouped": "SELECT g, sum(x) AS s, bit_or(x) AS b, sum(d) AS d FROM t GROUP BY g",
    "alone": "SELECT sum(x) AS s, bit_and(x) AS b FROM t",
}

Row = tuple[str, int | None, Decimal | None, Decimal | None, timedelta | None, int | None]
Rows = Counter[Row]


def _total(values: list[Any], fits: Callable[[Any], bool]) -> Any:
    """Return a sum, NULL of nothing; raises where it does not fit."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    total = sum(known[1:], known[0])
    if not fits(total):
        raise OverflowError
    return total


def _long(values: list[Any]) -> Any:
    return _total(values, lambda total: -LONG <= total < LONG)


def _decimal(values: list[Any], scale: int) -> Any:
    units = [None if v is None else int(v.scaleb(scale, EXACT)) for v in values]
    total = _total(units, lambda total: abs(total) < WIDE)
    return None if total is None else Decimal(total).scaleb(-scale, EXACT)


def _average(values: list[Any], scale: int) -> Any:
    """Return an average with four digits more; as its sum, it has to fit."""
    total = _decimal(values, scale)
    if total is None:
        return None
    n = sum(value is not None for value in values)
    units = int(total.scaleb(scale, EXACT)) * 10 ** (wanted := min(4, 38 - scale))
    rounded = (2 * abs(units) + n) // (2 * n)
    if rounded >= WIDE:
        raise OverflowError
    return Decimal(rounded if units >= 0 else -rounded).scaleb(-scale - wanted, EXACT)


def _percentile(rows: list[Row]) -> Any:
    """Return the greatest value that is there, as often as a row says."""
    weighed = [(row[1], row[5]) for row in rows if row[1] is not None and row[5] is not None]
    if any(weight < 0 for _, weight in weighed):
        raise OverflowError
    return max((float(x) for x, weight in weighed if weight), default=None)


def _is_near(x: int | None, other: int | None) -> bool:
    return x is other is None if x is None or other is None else x - 5 <= other <= x + 7


def _micros(value: timedelta) -> int:
    return (value.days * 86400 + value.seconds) * 1_000_000 + value.microseconds


def _interval(values: list[Any], average: bool) -> Any:
    units = [None if v is None else _micros(v) for v in values]
    total = _long(units)
    if total is None:
        return None
    n = sum(unit is not None for unit in units) if average else 1
    rounded = (2 * abs(total) + n) // (2 * n)
    return timedelta(microseconds=rounded if total >= 0 else -rounded)


def _answer(name: str, rows: Rows) -> Iterator[tuple[Any, ...]]:
    """Return what a query says of these rows; raises where some of it does not fit."""
    every = list(rows.elements())
    groups = {g: [row for row in every if row[0] == g] for g in {row[0] for row in every}}
    match name:
        case "alone":
            xs = [row[1] for row in every if row[1] is not None]
            yield _long(list(xs)), reduce(and_, xs) if xs else None
        case "grouped":
            for g, group in groups.items():
                xs = [row[1] for row in group if row[1] is not None]
                ored = reduce(or_, xs) if xs else None
                yield g, _long(list(xs)), ored, _decimal([r[2] for r in group], 6)
        case _:
            for g, group in groups.items():
                first = sorted(group, key=lambda row: (row[1] is not None, row[1]))
                for place, row in enumerate(first):
                    match name:
                        case "whole":
                            yield g, row[1], _long([r[1] for r in group])
                        case "running":
                            up_to = first[: place + 1]
                            yield g, row[1], _long([r[1] for r in up_to]), len(up_to)
                        case "decimals":
                            of_group = _decimal([r[2] for r in group], 6)
                            yield g, of_group, _decimal([r[3] for r in every], 0)
                        case "intervals":
                            spans = [r[4] for r in group]
                            yield g, _interval(spans, False), _interval(spans, True)
                        case "averages":
                            yield g, _average([r[2] for r in group], 6)
                        case "pairs":
                            yield g, _average([r[2] for r in group if r[1] is not None], 6)
                        case "near":
                            yield g, row[1], sum(_is_near(row[1], r[1]) for r in group)
                        case "then":
                            near = sum(_is_near(row[1], r[1]) for r in group)
                            yield g, row[1], near, near, near
                        case "often":
                            most = [r for r in group if r[1] is not None and r[1] > -8]
                            yield g, _percentile(most)
                        case "some":
                            yield g, _long([r[1] for r in group if r[1] is not None and r[1] > 0])
                        case _:
                            raise AssertionError(name)


def _random_row(random: Random) -> Row:
    def one(*values: Any) -> Any:
        return random.choice([None, *values])

    return (
        random.choice("ab"),
        one(1, -7, LONG - 1, -LONG, LONG // 2),
        one(Decimal("0.000001"), Decimal("-12.5"), NEAR, NEAR.copy_negate(), THIRD),
        one(Decimal(1), Decimal(WIDE - 1), Decimal(1 - WIDE), Decimal(-(10**27))),
        one(DAY, -DAY / 7, timedelta(microseconds=1)),
        random.choice([None, 0, 1, 2, 1, 2, 1, 2, -1]),
    )


def _check(client: Client, history: list[Rows]) -> Counter[str]:
    """Hold every view against its query, at every time; return how often each had errors."""
    failed: Counter[str] = Counter()
    for name in QUERIES:
        read = client.reader(name)
        for time, rows in enumerate(history):
            try:
                expected = Counter(_answer(name, rows))
            except OverflowError:
                failed[name] += 1
                with pytest.raises(CollectionHasErrors):
                    read.snapshot(time).to_table()
                continue
            assert not read.snapshot(time).errors().num_rows, f"{name} at {time}: {rows}"
            assert model.rows_of(read.snapshot(time).to_table()) == expected, f"{name} at {time}"
    return failed


Updates = list[tuple[dict[str, Any], int, int]]


def _story(seed: int, rounds: int) -> Iterator[tuple[Updates, list[Rows]]]:
    """Yield updates of five times, and what the rows are at every time so far."""
    random = Random(seed)
    rows: Rows = Counter()
    history: list[Rows] = []
    for _ in range(rounds):
        updates: Updates = []
        for time in range(len(history), len(history) + 5):
            change: Counter[Row] = Counter()
            for _ in range(random.randrange(1, 4)):
                if rows and random.random() < 0.55:
                    change[random.choice(sorted(rows, key=repr))] -= 1
                else:
                    change[_random_row(random)] += 1
            for row, wanted in change.items():
                diff = max(wanted, -rows[row])
                if diff:
                    updates.append((dict(zip(SCHEMA.names, row, strict=True)), time, diff))
                    rows[row] += diff
            rows = +rows
            history.append(Counter(rows))
        yield updates, history


def test_what_does_not_fit_comes_and_goes_at_every_time(spark: Any, client: Client) -> None:
    seed = 100
    print(f"seed {seed}")
    write, _ = client.create_or_load("t", SCHEMA)
    controller = ViewController(client, spark)
    views = [controller.create_view(name, sql) for name, sql in QUERIES.items()]
    kept = [view for view in views if isinstance(view, MaintainedView)]
    assert kept == views
    history: list[Rows] = []
    for updates, history in _story(seed, 2):
        write.compare_and_append(updates, len(history) - 5, len(history)).result()
        assert not step_together(client, controller, kept)
    failed = _check(client, history)
    fine = {name: len(history) - failed[name] for name in QUERIES}
    never = {"intervals", "near", "then"}
    assert all(failed[name] and fine[name] for name in QUERIES if name not in never), failed
    assert not failed["near"] + failed["then"], "a frame may reach beyond the ends of a type"
    assert not list(violations(client.core.state))


@pytest.mark.parametrize("scale", [0, 27, 38])
def test_sums_and_averages_of_long_decimals_are_judged_by_their_digits(
    spark: Any, scale: int
) -> None:
    """High and low digits, carried and with one sign: beside sums of Python's integers."""
    seed = 3
    print(f"seed {seed}")
    random = Random(seed)
    unit = 10**27
    ends = [WIDE - 1, 1 - WIDE, unit, -unit, unit - 1, 1 - unit, 1, -1, WIDE // 2, -WIDE // 2]
    groups: list[list[int]] = []
    for _ in range(400):
        values = [random.choice(ends) for _ in range(random.randrange(1, 6))]
        values += [random.randrange(1 - WIDE, WIDE) for _ in range(random.randrange(3))]
        rest = WIDE - 1 - sum(values) + random.choice([-1, 0, 1])
        values += [rest] if abs(rest) < WIDE and random.random() < 0.3 else []
        shorter = 10 ** random.choice([0, 0, 4, 5, 12, 30])
        groups.append([abs(v) // shorter * (1 if v > 0 else -1) for v in values])
    groups += [[1, 0], [-1, 0], [-1, 0, 0], [10, 0, 0], [unit, 1], [unit] * 7, [5, 0, 0, 0] * 3, []]
    type_ = f"decimal(38,{scale})"
    average = f"decimal(38,{min(38, scale + 4)})"
    value = Expression("v_1", type_, True, ("v_1",))
    numbers = iter(range(9))
    parts: list[str] = []
    answers: list[str] = []
    session = spark.newSession()
    try_eval.register(session)
    for function, of in (("sum", type_), ("avg", average)):
        call = WindowCall("s_1", function, "", WHOLE, of, True, ("v_1",), (value,))
        found = judged(call, lambda name: f"{name}_{next(numbers)}")
        assert found is not None
        parts += [f"{part.text} AS {part.name}" for part in found.parts]
        answers.append(f"{TRY}({found.answer.text}) AS {function}")
    nothing: list[tuple[int, Decimal | None]] = [(g, None) for g in range(len(groups))]
    some = [(g, Decimal(v).scaleb(-scale, EXACT)) for g, vs in enumerate(groups) for v in vs]
    table = session.createDataFrame([*nothing, *some], f"g int, v_1 {type_}")
    sums = session.sql(f"SELECT g, {', '.join(parts)} FROM {{t}} GROUP BY g", t=table)
    answered = sums.selectExpr("g", *answers).collect()
    assert len(answered) == len(groups)
    outside: Counter[str] = Counter()
    for g, s, a in answered:
        exact = [Decimal(v).scaleb(-scale, EXACT) for v in groups[g]]
        for name, got, meant in (("sum", s, _decimal), ("avg", a, _average)):
            try:
                expected = meant(exact, scale)
            except OverflowError:
                outside[name] += 1
                expected = None
            assert got == expected, f"{name} of {groups[g]}"
    assert all(20 < n < 350 for n in outside.values()), outside
    assert scale > 6 or outside["avg"] > outside["sum"], "an average has digits less than a sum"


def test_the_other_partitions_are_as_they_should_be(spark: Any, client: Client) -> None:
    """The rows of a view are exact also while it has errors, so that they are when it has none."""
    write, _ = client.create_or_load("t", SCHEMA)
    controller = ViewController(client, spark)
    controller.create_view("whole", QUERIES["whole"])
    controller.create_view("spans", QUERIES["intervals"])

    def row(g: str, x: int, span: timedelta) -> dict[str, Any]:
        return {"g": g, "x": x, "d": None, "e": None, "i": span, "f": None}

    long = row("a", LONG - 1, LONGEST)
    small, other = row("a", 1, timedelta(microseconds=1)), row("b", 2, DAY)
    steps = [[(long, 0, 1), (other, 0, 1)], [(small, 1, 1)], [(other, 2, 1)], [(long, 3, -1)]]
    for time, updates in enumerate(steps):
        write.compare_and_append(updates, time, time + 1).result()
        assert controller.run_once() == ("whole", "spans"), controller.failures()
    read = client.reader("whole")
    for time in (1, 2):
        for name in ("whole", "spans"):
            with pytest.raises(CollectionHasErrors, match="overflow"):
                client.reader(name).snapshot(time).to_table()
        assert read.snapshot(time).errors().column("__diff").to_pylist() == [2], "one of each row"
    assert model.rows_of(read.snapshot(0).to_table()) == {
        ("a", LONG - 1, LONG - 1): 1,
        ("b", 2, 2): 1,
    }
    assert model.rows_of(read.snapshot(3).to_table()) == {("a", 1, 1): 1, ("b", 2, 4): 2}
    spans = model.rows_of(client.reader("spans").snapshot(3).to_table())
    assert spans == {
        ("a", timedelta(microseconds=1), timedelta(microseconds=1)): 1,
        ("b", 2 * DAY, DAY): 2,
    }
