"""A stored plan of another Spark: the view is made anew, and goes on in the same output."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headwater.algebra.frontier import Frontier
from headwater.compute import controller as module
from headwater.compute import definition
from headwater.compute.controller import ViewController
from headwater.compute.dataflow.program import Program
from headwater.compute.dataflow.task import Done, StepTask
from headwater.compute.definition import item_key
from headwater.compute.ir import plan as plans
from headwater.compute.maintained import arrangements
from headwater.persist.client import Client
from headwater.persist.commands import SetItem
from headwater.persist.errors import CollectionHasErrors
from headwater.persist.read import Updates
from headwater.persist.state import violations
from headwater.testing.merging import merge_everything
from tests.unit.compute import model

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("g", pa.string()), pa.field("x", pa.int64())])
JOINED = "SELECT a.g, sum({}) AS y FROM t a JOIN t b ON a.g = b.g GROUP BY a.g"

MEANINGS = {
    "joined": (JOINED.format("a.x"), JOINED.format("a.x + b.x")),
    "agreed": (JOINED.format("a.x"), JOINED.format("b.x")),
    "ranked": (
        "SELECT x, rank() OVER (ORDER BY x) AS y FROM t",
        "SELECT x, rank() OVER (ORDER BY x DESC) AS y FROM t",
    ),
    "asked": ("SELECT min(x) AS y FROM t", "SELECT max(x) AS y FROM t"),
    "bad": ("SELECT g, div(10, x) AS y FROM t", "SELECT g, x AS y FROM t"),
    "worse": ("SELECT g, x AS y FROM t", "SELECT g, div(10, x) AS y FROM t"),
}
"""What each view said, and what the new Spark says."""


def _of_another_spark(client: Client, controller: ViewController, texts: dict[str, str]) -> None:
    """Store the views as if they had been made by an old Spark, in which these texts meant that."""
    for view in controller.views():
        if view.name in texts:
            plan = msgspec.structs.replace(plans.decoded(view.plan), spark_version="3.0.0")
            older = msgspec.structs.replace(view, plan=plans.encoded(plan), sql=texts[view.name])
            client.core.submit(SetItem(item_key(view.id), definition.encoded(older))).result()


def _answer(rows: Counter[tuple[str, int]], name: str, new: bool) -> Counter[Any]:
    """Return what a view says of these rows; no row is NULL or zero in them."""
    found: Counter[Any] = Counter()
    match name:
        case "joined" | "agreed":
            for g in {g for g, _ in rows}:
                xs = [x for (h, x), n in rows.items() if h == g for _ in range(n)]
                found[g, sum(xs) * len(xs) * (2 if new and name == "joined" else 1)] += 1
        case "ranked":
            for (_, x), n in rows.items():
                before = sum(m for (_, y), m in rows.items() if (y > x if new else y < x))
                found[x, before + 1] += n
        case "asked":
            xs = [x for _, x in rows]
            found[(max(xs) if new else min(xs)),] += 1
        case _:
            raise AssertionError(name)
    return found


def test_a_view_of_another_spark_is_made_anew_in_the_same_output(
    spark: Any, client: Client
) -> None:
    write, _ = client.create_or_load("t", SCHEMA)
    controller = ViewController(client, spark)
    for name, (old, _) in MEANINGS.items():
        controller.create_view(name, old, rules=name != "asked")
    rows: list[Counter[tuple[str, int]]] = []

    def go_on(time: int) -> None:
        now = Counter(rows[-1]) if rows else Counter({("z", 0): 1})
        changes = [(("ab"[time % 2], time + 1), 1)]
        if time == 2:
            changes.append((("b", 2), -1))
        if time == 0:
            changes.append((("z", 0), 1))
        for row, diff in changes:
            if row != ("z", 0):
                now[row] += diff
        rows.append(+now)
        updates = [({"g": g, "x": x}, time, diff) for (g, x), diff in changes]
        write.compare_and_append(updates, time, time + 1).result()

    for time in range(4):
        go_on(time)
        if time != 1:
            controller.run_once()
    assert not controller.failures()
    before, known = client.core.state, {view.name: view for view in controller.views()}
    _of_another_spark(client, controller, {name: new for name, (_, new) in MEANINGS.items()})
    for time in range(4, 7):
        go_on(time)
        if time != 4:
            assert set(controller.run_once()) == set(MEANINGS), controller.failures()
        if time == 5:
            assert merge_everything(client)
    assert not controller.failures()
    for name in ("joined", "agreed", "ranked", "asked"):
        read = client.reader(name)
        for time in range(read.since.only(), 7):
            expected = _answer(rows[time], name, new=time >= 4)
            found = model.rows_of(read.snapshot(time).to_table())
            assert found == expected, f"{name} at {time}"
    for name, bad in (("bad", range(4)), ("worse", range(4, 7))):
        for time in range(7):
            snapshot = client.reader(name).snapshot(time)
            if time in bad:
                with pytest.raises(CollectionHasErrors, match="ivision by zero"):
                    snapshot.to_table()
            else:
                assert snapshot.to_table().num_rows, f"{name} at {time}"
    state = client.core.state
    for view in controller.views():
        assert view.spark_version == spark.version
        assert view.id == known[view.name].id
        assert not (set(known[view.name].owned) - {view.id}) & set(state.collections)
    assert len(arrangements(state)) == len(arrangements(before)), "what is stored is used again"
    assert not list(violations(state))


def test_what_did_not_change_is_not_written_again(spark: Any, client: Client) -> None:
    write, _ = client.create_or_load("t", SCHEMA)
    controller = ViewController(client, spark)
    controller.create_view("agreed", MEANINGS["agreed"][0])
    write.compare_and_append([({"g": str(n), "x": n}, 0, 1) for n in range(50)], 0, 1).result()
    controller.run_once()
    _of_another_spark(client, controller, {"agreed": MEANINGS["agreed"][1]})
    listen = client.reader("agreed").listen(0)
    write.compare_and_append([({"g": "1", "x": 1}, 1, 1)], 1, 2).result()
    assert controller.run_once() == ("agreed",), controller.failures()
    event = listen.fetch(timeout=60)
    assert isinstance(event, Updates)
    assert event.ok.num_rows == 2, "the one group that changed"


def test_what_cannot_be_made_anew_stalls_and_says_why(spark: Any, client: Client) -> None:
    write, _ = client.create_or_load("t", SCHEMA)
    controller = ViewController(client, spark)
    texts = {
        "framed": "",
        "retyped": "SELECT g, CAST(x AS STRING) AS x FROM t",
        "gone": "SELECT g, no_longer_there(x) AS x FROM t",
    }
    for name in (*texts, "fine"):
        controller.create_view(name, "SELECT g, x FROM t")
    write.compare_and_append([({"g": "a", "x": 1}, 0, 1)], 0, 1).result()
    controller.run_once()
    _of_another_spark(client, controller, texts)
    write.compare_and_append([({"g": "a", "x": 2}, 1, 1)], 1, 2).result()
    assert controller.run_once() == ("fine",)
    names = {view.id: view.name for view in controller.views()}
    failures = {names[gid]: error for gid, error in controller.failures().items()}
    assert set(failures) == set(texts)
    assert "the code it was made of is not stored" in failures["framed"]
    assert "has (g string, x bigint) and the view shows (g string, x string)" in failures["retyped"]
    assert "no_longer_there" in failures["gone"]
    for failure in failures.values():
        assert "the plan is of Spark 3.0.0" in failure
        assert "create it again" in failure
    assert client.reader("framed").snapshot(0).to_table().num_rows == 1, "what was is readable"


@pytest.mark.parametrize("steps", [0, 2], ids=["from its first step", "later"])
def test_a_view_that_fails_for_long_shares_nothing_any_more(
    spark: Any,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    steps: int,
) -> None:
    def run(self: Program, task: StepTask, *about: str) -> Done:
        stepped = [gid for gid, of in zip(self.views, task.views, strict=True) if of is not None]
        if culprit.id in stepped:
            raise KeyError("it cannot be computed")
        return real(self, task, *about)

    def go_on() -> None:
        time = len(rows)
        before = rows[-1] if rows else Counter[tuple[str, int]]()
        rows.append(before + Counter({("ab"[time % 2], time + 1): 1}))
        updates = [({"g": "ab"[time % 2], "x": time + 1}, time, 1)]
        write.compare_and_append(updates, time, time + 1).result()

    monkeypatch.setattr(module, "PINNED_MS_MAX", 3)
    write, _ = client.create_or_load("t", SCHEMA)
    rows: list[Counter[tuple[str, int]]] = []
    controller = ViewController(client, spark)
    culprit = model.incremental(controller.create_view("joined", JOINED.format("a.x")))
    controller.create_view("agreed", JOINED.format("b.x"))
    (arrangement,) = arrangements(client.core.state).values()
    for _ in range(steps):
        go_on()
        assert set(controller.run_once()) == {"joined", "agreed"}
    with monkeypatch.context() as patched:
        real = Program.run
        patched.setattr(Program, "run", run)
        for lag in range(1, 8):
            go_on()
            assert controller.run_once() == ("agreed",)
            assert "it cannot be computed" in controller.failures()[culprit.id]
            state = client.core.state
            # What it lacks is told when it is tried the next time.
            held = max(steps - 1, 0) if lag <= 4 else len(rows) - 1
            assert state.collections[arrangement.id].since == Frontier.of(held), lag
            assert len(arrangements(state)) == (1 if lag <= 4 else 2), lag
            assert not list(violations(state))
    told = [record for record in caplog.records if "shares nothing" in record.getMessage()]
    assert [record.event["view"] for record in told] == ["joined"], "once"  # type: ignore[attr-defined]
    assert set(controller.run_once()) == {"joined"}
    assert controller.failures() == {}
    go_on()
    assert set(controller.run_once()) == {"joined", "agreed"}
    for name in ("joined", "agreed"):
        read = client.reader(name)
        for time in range(read.since.only(), len(rows)):
            found = model.rows_of(read.snapshot(time, timeout=0).to_table())
            assert found == _answer(rows[time], name, new=False), f"{name} at {time}"
    assert controller.drop_view("joined")
    assert list(arrangements(client.core.state)) == [arrangement.id], "its own goes with it"
    assert not list(violations(client.core.state))
