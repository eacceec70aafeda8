"""Views against their model at every time, without Spark: the tasks are run here, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.base.errors import HeadwaterError
from headwater.collection.run_layout import LAYOUTS
from headwater.compute import accumulate, join, step, step_task
from headwater.compute.controller import ViewController
from headwater.compute.view import View
from headwater.persist.client import Client, WriteHandle, open_location
from headwater.persist.commands import All, Atomic, UpperMismatch
from headwater.persist.core import Settings
from headwater.persist.maintenance import Maintenance
from headwater.persist.spark_parts import place_of
from headwater.persist.state import violations
from tests.unit.compute import model

SEEDS = range(25)


class NoSpark:
    """All of a session that creating a view asks for."""

    version = "none"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_location(tmp_path, layouts=LAYOUTS, settings=Settings(maintenance=False)) as opened:
        yield opened


def advance(client: Client, view: View, attempt: str = "0") -> object:
    """Step a view in this process; the commit is the real one."""
    core = client.core
    planned = step.plan(core.state, view)
    if planned is None:
        return None
    place = place_of(core)
    assert place is not None
    with core.step() as names:
        parts = step_task.run(planned.task(place, names, core), attempt)
        return core.submit(Atomic(step.commands(planned, parts))).result()


def check_all_times(client: Client, view: View, *tables: model.Table) -> None:
    read = client.reader(view.name)
    for time in range(read.since.only(), read.upper.only()):
        expected = model.query(*(table.at(time) for table in tables))
        assert model.rows_of(read.snapshot(time).to_table()) == expected, f"at time {time}"


def run_history(client: Client, seed: int, *, steps: int = 5) -> View:
    """A random history, stepped at random moments, with merges and compaction in between."""
    random = Random(seed)
    print(f"seed {seed}")
    tables = (model.orders(), model.customers())
    writers = [
        client.create_or_load(name, table.schema)[0]
        for name, table in zip(("orders", "customers"), tables, strict=True)
    ]
    maintenance = Maintenance(client.core)
    controller = ViewController(client, NoSpark())
    view = None
    time = 0
    for number in range(steps):
        upper = time + random.randint(1, 4)
        for table, writer in zip(tables, writers, strict=True):
            for t in range(time, upper):
                writer.write(table.change(random, t)).result()
            writer.seal(upper).result()
        time = upper
        if view is None and number >= random.randint(0, 1):
            view = model.incremental(controller.create_view("view", model.SQL))
        if view is not None:
            advance(client, view)
            check_all_times(client, view, *tables)
        if random.random() < 0.5:
            for writer in writers:
                writer.allow_compaction(random.randint(writer.upper.only() - 1, time)).result()
        for collection in list(client.core.state.collections):
            while random.random() < 0.7 and maintenance.merge_one(collection):
                pass
    assert view is not None
    assert not list(violations(client.core.state))
    return view


@pytest.mark.parametrize("seed", SEEDS)
def test_a_view_is_exact_at_every_time(client: Client, seed: int) -> None:
    run_history(client, seed)


def test_all_that_a_view_writes_has_one_upper_and_history_from_just_before(client: Client) -> None:
    view = run_history(client, 1)
    state = client.core.state
    ids = view.collections
    for gid in (ids.output, ids.left, ids.right, ids.accumulators):
        assert state.upper(state.collections[gid]) == state.upper(state.collections[ids.output])
    hold = Frontier.of(state.upper(state.collections[ids.output]).only() - 1)
    for gid in (ids.left, ids.right, ids.accumulators):
        assert state.collections[gid].since == hold
    for gid in view.inputs:
        assert state.collections[gid].readers[view.reader_id].since == hold


def _two_tables(client: Client) -> list[WriteHandle]:
    return [
        client.create_or_load("orders", model.ORDERS)[0],
        client.create_or_load("customers", model.CUSTOMERS)[0],
    ]


def test_a_second_attempt_at_a_committed_step_changes_nothing(client: Client) -> None:
    random = Random(3)
    left, right = model.orders(), model.customers()
    orders, customers = _two_tables(client)
    for time in range(4):
        orders.write(left.change(random, time)).result()
        customers.write(right.change(random, time)).result()
    orders.seal(2).result()
    customers.seal(2).result()
    view = model.incremental(ViewController(client, NoSpark()).create_view("view", model.SQL))
    core = client.core
    before = step.plan(core.state, view)
    place = place_of(core)
    assert before is not None
    assert place is not None
    with core.step() as names:
        first = step_task.run(before.task(place, names, core), "1")
        again = step_task.run(before.task(place, names, core), "2")
        assert isinstance(core.submit(Atomic(step.commands(before, first))).result(), All)
        # The same step, its reply lost: recognised. One that reaches further: refused.
        assert isinstance(core.submit(Atomic(step.commands(before, again))).result(), All)
        orders.seal(4).result()
        customers.seal(4).result()
        further = step.Planned(
            view,
            step.Interval(before.interval.lower, Frontier.of(4)),
            before.left,
            before.right,
            before.internal,
        )
        outcome = core.submit(Atomic(step.commands(further, first))).result()
    assert isinstance(outcome, UpperMismatch)
    assert core.state.collections[view.left].readers[view.reader_id].since == Frontier.of(1)
    advance(client, view)
    check_all_times(client, view, left, right)


def test_a_closed_input_closes_the_view_and_lets_history_go(client: Client) -> None:
    random = Random(5)
    left, right = model.orders(), model.customers()
    orders, customers = _two_tables(client)
    for table, writer in ((left, orders), (right, customers)):
        for time in range(3):
            writer.write(table.change(random, time)).result()
        writer.seal(None).result()
    view = model.incremental(ViewController(client, NoSpark()).create_view("view", model.SQL))
    advance(client, view)
    read = client.reader("view")
    assert read.upper.is_closed
    expected = model.query(left.at(2), right.at(2))
    assert model.rows_of(read.snapshot(2).to_table()) == expected
    assert step.plan(client.core.state, view) is None
    assert client.core.state.collections[view.collections.left].since.is_closed


def test_errors_of_an_input_are_errors_of_the_view_until_retracted(client: Client) -> None:
    orders, customers = _two_tables(client)
    error = {"condition": ["BAD"], "message": ["a bad row"], "context": [None]}

    def errors(time: int, diff: int) -> pa.Table:
        schema = pa.schema(
            [
                pa.field("condition", pa.string(), nullable=False),
                pa.field("message", pa.string(), nullable=False),
                pa.field("context", pa.string()),
                pa.field("__time", pa.int64(), nullable=False),
                pa.field("__diff", pa.int64(), nullable=False),
            ]
        )
        return pa.table({**error, "__time": [time], "__diff": [diff]}, schema=schema)

    none: list[model.Triple] = []
    orders.compare_and_append(none, 0, 2, errors=errors(1, 1)).result()
    customers.compare_and_append(none, 0, 4).result()
    orders.compare_and_append(none, 2, 4, errors=errors(3, -1)).result()
    view = ViewController(client, NoSpark())
    created = model.incremental(view.create_view("view", model.SQL))
    assert created.start == 3
    advance(client, created)
    assert client.reader("view").snapshot(3).to_table().num_rows == 0
    orders.compare_and_append(none, 4, 6, errors=errors(4, 1)).result()
    customers.compare_and_append(none, 4, 6).result()
    advance(client, created)
    with pytest.raises(HeadwaterError, match="a bad row"):
        client.reader("view").snapshot(5).to_table()


def test_a_sum_that_does_not_fit_stops_the_view_and_says_so(client: Client) -> None:
    orders, customers = _two_tables(client)
    row = {"customer": 1, "region": "east", "amount": 2**62}
    orders.compare_and_append([(row, 0, 2)], 0, 1).result()
    customers.compare_and_append([({"id": 1, "tier": None, "credit": None}, 0, 1)], 0, 1).result()
    view = model.incremental(ViewController(client, NoSpark()).create_view("view", model.SQL))
    with pytest.raises(HeadwaterError, match="does not fit"):
        advance(client, view)
    assert client.reader("view").upper == Frontier.of(0)


def test_dropping_a_view_frees_its_state_and_its_holds(client: Client) -> None:
    view = run_history(client, 7)
    controller = ViewController(client, NoSpark())
    assert controller.drop_view("view")
    assert not controller.drop_view("view")
    state = client.core.state
    assert controller.views() == ()
    assert set(state.collections) == set(view.inputs)
    assert all(view.reader_id not in c.readers for c in state.collections.values())


# ---- planted defects: each is caught by the oracle above ---------------------------------------


def _hold_at_upper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step.Interval, "hold", property(lambda self: self.upper))


def _no_cross_term(monkeypatch: pytest.MonkeyPatch) -> None:
    def path(query: Any, side: Any, inputs: Any, *, upper: int) -> Any:
        bare = {
            s: a if s == side else join.Arranged(a.runs, a.delta.slice(0, 0))
            for s, a in inputs.items()
        }
        return real(query, side, bare, upper=upper)

    real = join._path
    monkeypatch.setattr(join, "_path", path)


def _both_paths_see_their_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(*args: Any, **kwargs: Any) -> Any:
        return real(*args, **{**kwargs, "strict": False})

    real: Any = vars(join)["probe"]
    monkeypatch.setattr(join, "probe", probe)


def _accumulator_without_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(query: Any, state: Any, schema: Any) -> Any:
        table, present = real(query, state, schema)
        return table, present & (table["amounts"].fill_null(0).to_numpy() > 0)

    real = accumulate._output_rows
    monkeypatch.setattr(accumulate, "_output_rows", rows)


def _all_at_the_last_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def pairs(*args: Any, upper: int, **kwargs: Any) -> Any:
        joined = real(*args, upper=upper, **kwargs)
        times = pa.array([upper - 1] * joined.num_rows, pa.int64())
        return joined.set_column(joined.schema.get_field_index("__time"), "__time", times)

    real: Any = vars(step_task)["changed_pairs"]
    monkeypatch.setattr(step_task, "changed_pairs", pairs)


DEFECTS = [
    _hold_at_upper,
    _no_cross_term,
    _both_paths_see_their_own_time,
    _accumulator_without_count,
    _all_at_the_last_time,
]


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: object
) -> None:
    assert callable(defect)
    defect(monkeypatch)
    for seed in SEEDS:
        settings = Settings(maintenance=False)
        with open_location(tmp_path / str(seed), layouts=LAYOUTS, settings=settings) as client:
            try:
                run_history(client, seed)
            except (AssertionError, HeadwaterError):
                return
    pytest.fail("nobody noticed")
