"""Views stepped together for a while, without Spark: exact at every time, whatever came between.

Views of random plans share a location. They are created at different times, some lag behind, steps
are attempted in vain and done again, histories are merged, what workers remember is forgotten now
and then, and whatever has a bound in size has a small one. What runs is what a task of Spark's
runs, and what the stepper commits.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from pathlib import Path
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pytest
from msgspec import structs

from headwater.base.ids import GlobalId
from headwater.collection import probe
from headwater.compute import maintained
from headwater.compute.dataflow import joint, lanes, memory, remembered, written
from headwater.compute.dataflow.chain import Chain
from headwater.compute.dataflow.graph import DeltaJoin, Hop
from headwater.compute.dataflow.lower import NoRule, lowered
from headwater.compute.dataflow.ops import changes, reduce, top_k
from headwater.compute.dataflow.task import Done
from headwater.compute.ir.expression import Comparison, Field, JoinKey, Named
from headwater.compute.ir.node import (
    Aggregate,
    Filter,
    Join,
    Node,
    Project,
    Scan,
    Union,
    keep,
    reference,
    relations,
)
from headwater.compute.maintained import GroupStep, ViewStep
from headwater.compute.step import Interval
from headwater.persist import fsck
from headwater.persist.client import Client
from headwater.persist.commands import All, Atomic
from headwater.persist.finding import Finding
from headwater.persist.spark import writing
from headwater.persist.spark_parts import place_of
from headwater.persist.state import bound
from headwater.testing import oracle
from headwater.testing.merging import merge_everything
from headwater.testing.plans import random_plan
from headwater.testing.relations import RELATIONS, Histories, random_history, with_debts
from headwater.testing.stages import Stages
from tests.seeds import seeds
from tests.unit.dataflow.lowered_plans import A, B, call, column, inner, plain, where
from tests.unit.dataflow.ranged_views import RangedView, as_row, opened
from tests.unit.dataflow.test_ranges import compare, write

STEPS, VIEWS = 7, 4


@dataclass
class Together:
    """Views of one location, and what the driver knows of their states."""

    client: Client
    random: Random
    views: list[RangedView] = field(default_factory=list)
    stamps: dict[GlobalId, str] = field(default_factory=dict)

    def create(self, plan: Node) -> None:
        names = {name: name for name in RELATIONS}
        name = f"view{len(self.views)}"
        self.views.append(RangedView(self.client, plan, names, 4, name=name))

    def step(self, views: Sequence[RangedView]) -> None:
        """Step these views: those that are new each for itself, the others as one."""
        state = self.client.core.state
        found = [maintained.plan_view(state, one.view) for one in views]
        planned = [step for step in found if step is not None]
        idle = [step for step in planned if step.is_empty]
        if idle:
            self._submit(maintained.idle_commands(state, idle))
        busy = [step for step in planned if not step.is_empty and not step.hydrating]
        if busy:
            self._run(busy)
        for one, step in zip(views, found, strict=True):
            if step is not None and step.hydrating:
                one.step()

    def _run(self, steps: Sequence[ViewStep]) -> None:
        core = self.client.core
        group = maintained.plan_group(core.state, steps)
        # A program may be of more views than are stepped.
        among = [one.view for one in self.views]
        stages = Stages(Chain(tuple(view.flow for view in among)).prepared())
        place = place_of(core)
        assert place is not None
        for last in (False, True) if self.random.random() < 0.3 else (True,):
            with core.step() as step:
                ids = [view.id for view in among]
                task = group.task(place, writing(core, step), ids, self.stamps)
                done = stages.run(task)
                if last:
                    self._submit(maintained.commands(group, done, {}))
                    self._remember(group, done)

    def _remember(self, group: GroupStep, done: Done) -> None:
        for step in group.views:
            states = step.view.stored.values()
            after = remembered.stamps(self.stamps, states, done.stamps, done.parts)
            for state in states:
                self.stamps.pop(state, None)
            self.stamps.update(after)

    def _submit(self, commands: Sequence[object]) -> None:
        assert isinstance(self.client.core.submit(Atomic(tuple(commands))).result(), All)  # type: ignore[arg-type]

    def merge(self) -> None:
        known = list(self.client.core.state.collections)
        merge_everything(self.client, [gid for gid in known if self.random.random() < 0.7])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give everything that has a bound a small one."""
    monkeypatch.setattr(memory, "GROUPS_MAX", 3)
    monkeypatch.setattr(changes, "names_of", lambda keys: memory.names_of(keys, most=2))
    monkeypatch.setattr(remembered, "KEPT_MAX", 3)
    monkeypatch.setattr(maintained, "IDLE_HOLD_LAG_MS", 1)
    monkeypatch.setattr(written, "LARGE_ROWS", 4)
    monkeypatch.setattr(lanes, "BATCH_ROWS_MAX", 2)
    for module in (reduce, top_k):
        monkeypatch.setattr(module, "SLACK", 1)


def plans(random: Random) -> Iterator[Node]:
    """Yield plans that have a rule, over something."""
    while True:
        plan = random_plan(random, random.choice([1, 2, 2, 3]))
        if relations(plan) and plan.columns and not isinstance(lowered(plan), NoRule):
            yield plan


def errors(client: Client) -> list[Finding]:
    """Return what the log says of its parts, and is not so."""
    found = fsck.check(client.core.blob, client.core.consensus, client.core.layouts)
    return [one for one in found if one.severity == "error"]


def alike(random: Random) -> Iterator[Node]:
    """Yield joins of the same relations: by the same columns or by others, for other columns."""
    relation, other = random.choice([("r", "t"), ("r", "u"), ("r", "r"), ("u", "u")])
    every = product(RELATIONS[relation], RELATIONS[other])
    same = [(a, b) for a, b in every if _is_same(a, b)]
    for number in count(1):
        left, right = _scan(relation, 2 * number), _scan(other, 2 * number + 1)
        keys = []
        for a, b in random.sample(same, random.choice([1, 1, 2])):
            sides = (plain(f"{a}_{2 * number}", _type(a)), plain(f"{b}_{2 * number + 1}", _type(b)))
            how: list[Comparison] = ["=", "=", "<=>"]
            keys.append(JoinKey(*sides, random.choice(how)))
        if random.random() < 0.2:
            left, right = right, left
            keys = [JoinKey(key.right, key.left, key.comparison) for key in keys]
        join = Join(left, right, "inner", tuple(keys))
        names = [column.name for column in join.columns]
        yield keep(join, random.sample(names, random.randint(1, len(names))))


FILTERS = (
    ("a", 0, "({} > 0)"),
    ("b", 0, "({} >= 2)"),
    ("b", 0, "({} IS NULL)"),
    ("s", 0, "({} = 'a')"),
    ("g", 1, "({} IS NOT NULL)"),
    ("h", 1, "({} = 'b')"),
    ("a", 0, "(({0} < 2) OR ({0} IS NULL))"),
)


def narrowed(random: Random) -> Iterator[Node]:
    """Yield one join again and again, each time under some of a few filters."""
    some = random.sample(FILTERS, 3)
    how: Literal["=", "<=>"] = "=" if random.random() < 0.5 else "<=>"
    for number in count(1):
        sides = (_scan("r", 2 * number), _scan("u", 2 * number + 1))
        key = JoinKey(plain(f"a_{2 * number}", "int"), plain(f"f_{2 * number + 1}", "int"), how)
        node: Node = Join(*sides, "inner", (key,))
        names = [column.name for column in node.columns]
        for field_, side, text in some:
            if random.random() < 0.7:
                name = f"{field_}_{2 * number + side}"
                node = Filter(node, where(text.format(name), name))
        yield keep(node, random.sample(names, random.randint(1, len(names))))


def _scan(relation: str, number: int) -> Scan:
    fields = RELATIONS[relation].items()
    return Scan(relation, tuple(Field(f, column(f"{f}_{number}", type_)) for f, type_ in fields))


def _type(name: str) -> str:
    return next(fields[name] for fields in RELATIONS.values() if name in fields)


def _is_same(a: str, b: str) -> bool:
    return _type(a) == _type(b) in ("int", "bigint", "string")


def check(seed: int) -> int:
    """Return how many views of random plans were compared."""
    random = Random(f"together {seed}")
    return lived(random, plans(random), seed)


def lived(random: Random, made: Iterator[Node], seed: int) -> int:
    """Return how many views of these plans were compared."""
    histories = random_history(random, steps=STEPS, changes=7)
    histories = with_debts(random, histories, random.choice([0, 0, 1, 3]))
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "data") as client:
        together = Together(client, random)
        write(client, histories, 0)
        behind = dict.fromkeys(RELATIONS, 1)
        for number in range(1, STEPS + 1):
            while len(together.views) < VIEWS and random.random() < 0.7:
                together.create(next(made))
            for name, told in behind.items():
                # Some inputs are behind others: arrangements are ahead of the views that have both.
                if number == STEPS or random.random() < 0.7:
                    for late in range(told, number + 1):
                        write(client, histories, late, name)
                    behind[name] = number + 1
            some = together.views if number == STEPS else _most(random, together.views)
            together.step(some)
            if random.random() < 0.5:
                together.merge()
        assert not errors(client), f"seed {seed}"
        return sum(_compared(view, histories, seed) for view in together.views)


def _most(random: Random, views: Sequence[RangedView]) -> list[RangedView]:
    return [view for view in views if random.random() < 0.8]


def _compared(view: RangedView, histories: Histories, seed: int) -> bool:
    try:
        compare(view, view.plan, histories, seed)
    except oracle.TooMany:
        return False
    return True


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("first", seeds(3, 999, 3))
def test_views_are_exact_at_every_time(first: int) -> None:
    print(f"seeds {first} to {first + 2}")
    assert sum(map(check, range(first, first + 3))) > 3


def lives(normal: int) -> list[Any]:
    """Return the seeds of the lives of one test: enough of them to have what it looks for."""
    soaked = (range(first, first + 100) for first in range(100, 700, 100))
    return [range(normal), *(pytest.param(some, marks=pytest.mark.soak) for some in soaked)]


@pytest.mark.parametrize("some", lives(6), ids=str)
def test_joins_of_several_views_are_one_if_they_are_the_same(
    some: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seeds {some}")
    as_one: list[int] = []

    def counted(joins: Sequence[DeltaJoin], wanted: Sequence[Sequence[str]]) -> joint.Joint:
        as_one.append(len(joins))
        return real(joins, wanted)

    real = joint.joint
    monkeypatch.setattr(joint, "joint", counted)
    for seed in some:
        random = Random(f"alike {seed}")
        lived(random, alike(random), seed)
    assert len(as_one) > 5, as_one


@pytest.mark.parametrize("some", lives(8), ids=str)
def test_joins_under_different_filters_are_one_that_keeps_what_any_of_them_wants(
    some: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seeds {some}")
    asked: list[int] = []

    def counted(joins: Sequence[DeltaJoin], wanted: Sequence[Sequence[str]]) -> joint.Joint:
        one = real(joins, wanted)
        asked.append(sum(map(len, one.asked.values())))
        return one

    real = joint.joint
    monkeypatch.setattr(joint, "joint", counted)
    monkeypatch.setattr(probe, "PAIRS_MANY", 1)
    for seed in some:
        random = Random(f"narrowed {seed}")
        lived(random, narrowed(random), seed)
    assert sum(map(bool, asked)) > 5, asked


def _asked_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of the views leaves out is left out for all."""
    monkeypatch.setattr(joint, "common", lambda several: several[0])


def _held_at_upper(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was before the upper and what is at it are no longer told apart."""
    monkeypatch.setattr(Interval, "hold", property(lambda interval: interval.upper))


def _nulls_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins by = and by <=> are taken for the same."""

    def hop(one: Hop, *args: Any) -> Any:
        return real(structs.replace(one, null_safe=()), *args)

    real = joint._hop
    monkeypatch.setattr(joint, "_hop", hop)


@pytest.mark.parametrize(("plant", "seed"), [(_held_at_upper, 2), (_nulls_alike, 0)])
def test_a_defect_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def life() -> None:
        random = Random(f"alike {seed}")
        lived(random, alike(random), seed)

    life()
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=rf"seed {seed}, time \d+"):
        life()


def test_what_one_view_leaves_out_is_not_left_out_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def life() -> None:
        for seed in range(8):
            random = Random(f"narrowed {seed}")
            lived(random, narrowed(random), seed)

    life()
    _asked_by_one(monkeypatch)
    with pytest.raises(AssertionError, match=r"seed \d, time \d+"):
        life()


# ---- what random views seldom have -----------------------------------------------------------

COUNTED = Aggregate(A, ("x_1",), (call("n_1", "count", "y_1"),))
AGAIN = Aggregate(B, ("x_2",), (call("n_2", "count", "z_2"),))
BOTH = (column("p_3"), column("q_3"))


def joined(key: str) -> Node:
    """Return a join with the counts, without them."""
    join = inner(B, COUNTED, (key, "x_1"))
    return Project(join, tuple(map(reference, B.columns)))


WRITTEN: dict[str, Node] = {
    # What one of them retracts another inserts.
    "cancels in a union": Union((COUNTED, AGAIN), BOTH),
    "cancels without its group": Project(COUNTED, (Named("n_3", plain("n_1")),)),
    # Two operators probe the same arrangement; one of them writes it.
    "probed twice": Union((joined("x_2"), joined("z_2")), BOTH),
}
FIELDS = {"a": ("x", "y"), "b": ("x", "z")}
Changes = Mapping[str, Sequence[tuple[tuple[int, int], int]]]
STORY: Sequence[Changes] = (
    {"a": [((0, 1), 1), ((1, 1), 2)], "b": [((0, 1), 2), ((1, 1), 1)]},
    {"a": [((0, 1), 1), ((1, 1), -1)], "b": [((0, 1), -1), ((1, 1), 1)]},
    {"b": [((1, 0), 1)]},
    {"a": [((1, 1), -1)], "b": [((0, 1), -1)]},
)
"""What comes and goes in each step: groups, and relations, exchange their counts."""


class Tables:
    """Two relations that are written by hand, with what they hold."""

    def __init__(self, client: Client) -> None:
        self._writers = {}
        self._held: dict[str, oracle.Rows] = {relation: Counter() for relation in FIELDS}
        for relation, fields in FIELDS.items():
            schema = pa.schema([(field, pa.int64()) for field in fields])
            self._writers[relation], _ = client.create_or_load(relation, schema)

    def write(self, time: int, changes: Changes) -> None:
        for relation, writer in self._writers.items():
            told = changes.get(relation, ())
            updates = [(as_row(row, FIELDS[relation]), time, diff) for row, diff in told]
            writer.compare_and_append(updates, time, time + 1).result()
            for row, diff in told:
                self._held[relation][row] += diff

    def seal(self, relation: str, upper: int) -> None:
        self._writers[relation].seal(upper).result()

    def rows(self, plan: Node) -> oracle.Rows:
        tables = {r: oracle.Table(FIELDS[r], +rows) for r, rows in self._held.items()}
        return oracle.rows(plan, tables)


def test_the_holds_of_an_idle_view_follow_it_now_and_then(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as client:
        tables = Tables(client)
        together = Together(client, Random(0), [RangedView(client, COUNTED, {"a": "a"}, 99)])
        (view,) = together.views
        (gid,) = view.view.inputs
        found = []
        for upper in (1, 1 + maintained.IDLE_HOLD_LAG_MS, 2 + maintained.IDLE_HOLD_LAG_MS):
            tables.seal("a", upper)
            together.step([view])
            assert view.upper == upper
            readers = client.core.state.collections[gid].readers
            found.append(bound(readers[view.view.reader_id].since))
        assert found == [0, 0, 1 + maintained.IDLE_HOLD_LAG_MS]


@pytest.mark.parametrize("large", [written.LARGE_ROWS, 1])
@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_is_what_it_is_said_to_be(
    name: str, large: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written, "LARGE_ROWS", large)
    with opened(tmp_path / "data") as client:
        tables, plan = Tables(client), WRITTEN[name]
        view = RangedView(client, plan, {n: n for n in relations(plan)}, 99)
        for time, changes in enumerate(STORY):
            tables.write(time, changes)
            view.step()
            assert not errors(client)
            assert view.rows_at(time) == tables.rows(plan), f"time {time}"
