"""Random views on Spark: many at once, stepped together, held against Spark at every time.

    checked(session, client, batch=3, cases=[case(3, n) for n in range(SIZE)])  -> what is wrong

A *case* is a plan (``testing/plans.py``, ``testing/typed_plans.py``) made from its number. Those
of a *batch* are views of one location over a few *worlds*, sets of relations with a random history
each: deletes, replaced rows, NULLs, duplicates, several times a step, idle steps. Views of a world
share its arrangements; some are created later than others; now and then everything is merged.

What a view must hold is asked of Spark with the plan itself, for all times and all cases in one job
(``testing/at_times.py``), and at one time per world by the plan as it is. Where a plan fails on its
rows there must be an error at just these times. Rows are compared bit by bit, but for NaN, of which
Spark has one. Case n of batch b is a function of (b, n): the same numbers give the same story.

Relied on by: ``tests/spark/test_random_views.py``.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pyarrow as pa

from headwater.base.errors import HeadwaterError
from headwater.compute import maintained
from headwater.compute.catalyst import ordered
from headwater.compute.catalyst.render import rendered
from headwater.compute.controller import ViewController
from headwater.compute.dataflow.lower import NoRule, lowered
from headwater.compute.dataflow.task import Updates
from headwater.compute.ir.expression import Column, Expression, Named
from headwater.compute.ir.node import (
    Aggregate,
    Expand,
    Generate,
    Join,
    Node,
    Project,
    Scan,
    TopK,
    Union,
    Values,
    relations,
    walk,
)
from headwater.compute.ir.plan import VERSION, OutputColumn, Plan
from headwater.compute.ir.text import outlined
from headwater.compute.maintained import MaintainedView
from headwater.compute.session import MEANING
from headwater.persist.client import Client
from headwater.persist.consolidate import DIFF, TIME
from headwater.persist.decision import collection_named
from headwater.persist.maintenance import Maintenance
from headwater.persist.spark import arrow_frame
from headwater.persist.spark_parts import Reading, cut, place_of
from headwater.persist.state import bound
from headwater.testing.at_times import AT, TIMES, at_times
from headwater.testing.expressions import as_arrow
from headwater.testing.plans import random_plan
from headwater.testing.relations import DOMAINS, RELATIONS
from headwater.testing.typed_plans import (
    TYPED_DOMAINS,
    TYPED_RELATIONS,
    failing,
    typed_plan,
)

SIZE: Final = 25
"""How many cases a batch has."""
WORLDS: Final = 5
LATE: Final = 5
"""How many views of every third batch are created after the others have been stepped."""
ROWS_MAX: Final = 2_000
"""Plans whose operators may have more rows are not worth a test's time."""
PLAIN_EVERY: Final = 5
"""Every so many cases is also asked as it is, at one time: that proves ``at_times``."""

Row = tuple[Any, ...]
Rows = Counter[Row]


# ---- cases -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A view to be."""

    number: int
    world: int
    plan: Node
    told: Node | None
    """Where the plan fails on some rows: its rows, and which those are."""

    @property
    def name(self) -> str:
        """The view."""
        return f"view_{self.number}"


def case(batch: int, number: int) -> Case:
    """Return a case: the first of its random plans that fits.

    It reads something (what reads nothing is finished at once), every operator of it has a rule,
    and it is not too large.
    """
    random = Random(f"{batch}/{number}")
    world = number % WORLDS
    while True:
        make = typed_plan if _is_typed(world) else random_plan
        plan = make(random, random.choice([1, 2, 3, 3, 4, 4]))
        told = None
        if random.random() < 0.15:
            found = failing(random, plan)
            plan, told = (plan, None) if found is None else (found.plan, found.told)
        if not plan.columns:
            plan = Project(plan, (Named("one__1", Expression("1", "int", False)),))
        if relations(plan) and _rows(plan) < ROWS_MAX and not isinstance(lowered(plan), NoRule):
            return Case(number, world, plan, told)


def _rows(node: Node) -> float:
    """Return about how many rows a plan passes at a time, at most."""
    largest = 0.0
    known: dict[Node, float] = {}
    for one in walk(node):
        below = [known[child] for child in one.inputs]
        match one:
            case Scan():
                rows = 8.0
            case Values():
                rows = float(len(one.rows))
            case Join(kind="semi" | "anti"):
                rows = below[0]
            case Join():
                rows = max(below[0] * below[1] / 3 ** min(len(one.keys), 2), below[0])
            case Aggregate() if one.groups:
                rows = below[0] / 2
            case Aggregate():
                rows = 1.0
            case Union():
                rows = sum(below)
            case Generate():
                rows = 2 * below[0]
            case Expand():
                rows = len(one.projections) * below[0]
            case TopK() if one.limit is not None:
                rows = min(below[0], one.limit)
            case _:
                rows = max(below)
        known[one] = rows
        largest = max(largest, rows)
    return largest


def _is_typed(world: int) -> bool:
    return world % 2 == 1


# ---- worlds ----------------------------------------------------------------------------------


@dataclass
class World:
    """Relations and what happens to them; a row is the numbers of its values in their domains."""

    number: int
    random: Random
    uppers: list[int] = field(default_factory=list)
    _held: dict[str, Counter[tuple[int, ...]]] = field(default_factory=dict)
    _past: list[tuple[str, tuple[int, ...], int, int]] = field(default_factory=list)

    @property
    def relations(self) -> Mapping[str, Mapping[str, str]]:
        """Per relation its columns and their types."""
        return TYPED_RELATIONS if _is_typed(self.number) else RELATIONS

    @property
    def names(self) -> dict[str, str]:
        """The collections, by the names that plans have for them."""
        return {relation: f"{relation}_{self.number}" for relation in self.relations}

    def schema(self, relation: str) -> pa.Schema:
        """Return the columns of a relation."""
        return pa.schema([(n, _arrow(type_)) for n, type_ in self.relations[relation].items()])

    def go_on(self, client: Client, changes: int) -> None:
        """Let some things happen, at several times, and seal them."""
        lower = self.uppers[-1] if self.uppers else 0
        upper = lower + self.random.randint(2, 4)
        written = len(self._past)
        # Every relation changes, or none: a step of other views would have to be planned anew.
        relations = [*self.relations, *self.random.choices([*self.relations], k=changes)]
        self.random.shuffle(relations)
        times = sorted(self.random.choices(range(lower, upper), k=len(relations)))
        for relation, time in zip(relations, times, strict=True) if changes else ():
            self._change(relation, time)
        for relation, name in self.names.items():
            writer, _ = client.create_or_load(name, self.schema(relation))
            rows = [
                (self._shown(relation, row), time, diff)
                for r, row, time, diff in self._past[written:]
                if r == relation
            ]
            if rows:
                writer.write(rows).result()
            writer.seal(upper).result()
        self.uppers.append(upper)

    def at_all_times(self, relation: str, times: Iterable[int]) -> pa.Table:
        """Return the rows of a relation at these times, each as often as it is there."""
        rows: list[dict[str, Any]] = []
        for time in times:
            there: Counter[tuple[int, ...]] = Counter()
            for of, row, at, diff in self._past:
                if of == relation and at <= time:
                    there[row] += diff
            rows += [{**self._shown(relation, row), AT: time} for row in there.elements()]
        schema = self.schema(relation).append(pa.field(AT, pa.int64()))
        return pa.Table.from_pylist(rows, schema=schema)

    def _change(self, relation: str, time: int) -> None:
        held = self._held.setdefault(relation, Counter())
        there = sorted(held.elements())
        if there and self.random.random() < 0.45:
            gone = self.random.choice(there)
            held[gone] -= 1
            self._past.append((relation, gone, time, -1))
            if self.random.random() < 0.4:
                return
        types = self.relations[relation].values()
        come = tuple(self.random.randrange(len(self._values(type_))) for type_ in types)
        copies = 2 if self.random.random() < 0.2 else 1
        held[come] += copies
        self._past.append((relation, come, time, copies))

    def _shown(self, relation: str, row: Sequence[int]) -> dict[str, Any]:
        types = self.relations[relation]
        return {n: self._values(types[n])[at] for n, at in zip(types, row, strict=True)}

    def _values(self, type_: str) -> Sequence[Any]:
        if _is_typed(self.number):
            return (None, *(value for value, _ in TYPED_DOMAINS[type_]))
        return tuple(map(as_arrow, DOMAINS[type_]))


def _arrow(type_: str) -> pa.DataType:
    return Column("_c_0", type_, True).sql_type.arrow


# ---- a batch ---------------------------------------------------------------------------------


@dataclass
class Batch:
    """Cases over their worlds, from the first row to the last step."""

    session: Any
    client: Client
    number: int
    cases: Sequence[Case]
    worlds: dict[int, World] = field(default_factory=dict)
    views: dict[int, MaintainedView] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.controller = ViewController(self.client, self.session)
        self._random = Random(f"batch/{self.number}")
        for world in range(WORLDS):  # All of them, so that one case alone has the same history.
            self.worlds[world] = World(world, Random(f"{self.number}/{world}"))

    def run(self) -> None:
        """Create the views and step them three times."""
        some_late = self.number % 3 == 0
        early = [one for one in self.cases if one.number < SIZE - LATE or not some_late]
        late = [one for one in self.cases if one not in early]
        self._go_on(self._random.choice([0, 10, 14]))
        self._create(early)
        self._go_on(4)
        self._step()
        self._create(late)
        self._go_on(2)
        self._step()
        if self._random.random() < 0.5:
            self._merge()
        self._go_on(3)
        self._step()

    def _go_on(self, changes: int) -> None:
        for world in self.worlds.values():
            world.go_on(self.client, changes)

    def _create(self, cases: Iterable[Case]) -> None:
        for one in cases:
            names = self.worlds[one.world].names
            view = self.controller.create_view(
                one.name, planned(self.session, one.plan), relations=names
            )
            assert isinstance(view, MaintainedView), outlined(one.plan)
            self.views[one.number] = view

    def _step(self) -> None:
        failures = step_together(self.client, self.controller, self.views.values())
        assert not failures, "\n".join(failures)

    def _merge(self) -> None:
        maintenance = Maintenance(self.client.core)
        for collection in list(self.client.core.state.collections):
            while maintenance.merge_one(collection):
                pass

    # ---- what views hold -------------------------------------------------------------------

    def found(self, one: Case) -> dict[int, tuple[Rows, int]]:
        """Return, for every time of a view, its rows and how many errors it has."""
        core = self.client.core
        state, place = core.state, place_of(core)
        assert place is not None
        collection = collection_named(state, one.name)
        lower, upper = bound(collection.since), self.worlds[one.world].uppers[-1]
        assert bound(state.upper(collection)) >= upper, f"{one.name} is behind {upper}"
        ok, errors = cut(collection, lower, upper, hydrating=True)
        rows = Updates(Reading.of(place, collection), ok).table()
        updates = [*_updates(rows, collection_names(rows))]
        raised = [
            (time, diff)
            for table in errors.read(Reading.of(place, collection))
            for time, diff in zip(
                table.column(TIME).to_pylist(), table.column(DIFF).to_pylist(), strict=True
            )
        ]
        answers: dict[int, tuple[Rows, int]] = {}
        for time in range(lower, upper):
            there: Rows = Counter()
            for row, at, diff in updates:
                if at <= time:
                    there[row] += diff
            negative = {row: n for row, n in there.items() if n < 0}
            assert not negative, f"{one.name} at {time}: {negative}"
            answers[time] = +there, sum(diff for at, diff in raised if at <= time)
        return answers


def step_together(
    client: Client, controller: ViewController, views: Iterable[MaintainedView]
) -> list[str]:
    """Step all views, those that are new in one job as well; return why some could not be.

    The controller hydrates views one by one, because they may be large. These are not.
    """
    state = client.core.state
    steps = (maintained.plan_view(state, view) for view in views)
    first = [step for step in steps if step is not None and step.hydrating]
    failures: list[str] = []

    def stall(view: MaintainedView, error: HeadwaterError) -> None:
        failures.append(f"{view.name}: {error}")

    if first:
        controller._stepper._bisected(first, stall)
    controller.run_once()
    return [*failures, *controller.failures().values()]


def planned(session: Any, root: Node) -> Plan:
    """Return an operator as a whole plan; its columns are called as in it."""
    outputs = tuple(OutputColumn(column.name, column.name) for column in root.columns)
    return Plan(VERSION, session.version, dict(MEANING), root, outputs)


def collection_names(updates: pa.Table) -> list[str]:
    """Return the columns of updates that are data."""
    return [name for name in updates.column_names if name not in (TIME, DIFF)]


def _updates(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Row, int, int]]:
    columns = [table.column(name).to_pylist() for name in (*names, TIME, DIFF)]
    for *row, time, diff in zip(*columns, strict=True):
        yield tuple(map(identity, row)), time, diff


def identity(value: Any) -> Any:
    """Return what tells a value of Arrow's apart: bits of floats, maps without an order."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else struct.pack("d", value)
        case dict():
            return tuple(map(identity, value.values()))
        case list() if value and all(isinstance(item, tuple) for item in value):
            return frozenset((identity(k), identity(v)) for k, v in value)
        case list():
            return tuple(map(identity, value))
        case _:
            return value


# ---- what they must hold ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """A plan as one SELECT among others."""

    case: Case
    node: Node
    """Its last column is the time, if ``time`` is not given."""
    time: int | None
    views: Mapping[str, str]


class Recomputation:
    """The answers of Spark to the plans of a batch, at every time."""

    def __init__(self, session: Any, batch: Batch) -> None:
        # Everything is in one partition: then nothing is ever exchanged.
        self._session = session.newSession()
        for key, value in {
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        }.items():
            self._session.conf.set(key, value)
        self._views: dict[int, dict[str, str]] = {}
        self._plain: dict[int, tuple[int, dict[str, str]]] = {}
        for number in {one.world for one in batch.cases}:
            self._register(batch.worlds[number])

    def _register(self, world: World) -> None:
        times = range(world.uppers[-1])
        chosen = world.random.choice(times)
        tables = {r: world.at_all_times(r, times) for r in world.relations}
        tables[TIMES] = pa.table({AT: pa.array(times, pa.int64())})
        self._views[world.number] = {}
        plain: dict[str, str] = {}
        for relation, table in tables.items():
            name = f"{relation}_of_{world.number}"
            frame = arrow_frame(self._session, table).coalesce(1)
            frame.createOrReplaceTempView(name)
            self._views[world.number][relation] = name
            frame.where(f"{AT} = {chosen}").createOrReplaceTempView(f"{name}_plain")
            plain[relation] = f"{name}_plain"
        self._plain[world.number] = chosen, plain

    def answers(self, cases: Sequence[Case]) -> dict[int, dict[int, Rows]]:
        """Return the rows of each case at each time, the flags of failing ones among them."""
        asked: list[_Asked] = []
        for one in cases:
            root = one.plan if one.told is None else one.told
            asked.append(_Asked(one, at_times(root), None, self._views[one.world]))
            if one.number % PLAIN_EVERY == 0:
                chosen, views = self._plain[one.world]
                asked.append(_Asked(one, root, chosen, views))
        found = self._answered(asked)
        answers: dict[int, dict[int, Rows]] = {}
        for question, rows in zip(asked, found, strict=True):
            number, time = question.case.number, question.time
            if time is None:
                answers[number] = rows
            else:
                assert rows.get(time) == answers[number].get(time), (
                    f"at_times is wrong for case {number}:\n{outlined(question.node)}"
                )
        return answers

    def _answered(self, asked: Sequence[_Asked]) -> list[dict[int, Rows]]:
        """Ask all in one job: each column goes where a column of its type is."""
        slots: dict[str, int] = {}
        for one in asked:
            for type_, count in Counter(c.type for c in _columns(one)).items():
                slots[type_] = max(slots.get(type_, 0), count)
        places = [(type_, n) for type_, count in slots.items() for n in range(count)]
        texts = [self._text(number, one, places) for number, one in enumerate(asked)]
        text = "\nUNION ALL\n".join(texts)
        ordered.register(self._session, text)
        table = self._session.sql(text).toArrow()
        found: list[dict[int, Rows]] = []
        numbers = table.column("_asked").to_pylist()
        times = table.column("_time").to_pylist()
        columns = [[identity(v) for v in column.to_pylist()] for column in table.columns[2:]]
        at = {place: i for i, place in enumerate(places)}
        for number, one in enumerate(asked):
            mine = [i for i, asked_for in enumerate(numbers) if asked_for == number]
            wanted = [columns[at[place]] for place in _places(_columns(one))]
            rows: dict[int, Rows] = {}
            for i in mine:
                rows.setdefault(times[i], Counter())[tuple(c[i] for c in wanted)] += 1
            found.append(rows)
        return found

    def _text(self, number: int, one: _Asked, places: Sequence[tuple[str, int]]) -> str:
        columns = _columns(one)
        own = dict(zip(_places(columns), (c.name for c in columns), strict=True))
        slots = [
            f"{own[place]} AS slot_{n}" if place in own else f"CAST(NULL AS {place[0]}) AS slot_{n}"
            for n, place in enumerate(places)
        ]
        time = f"{one.time}L" if one.time is not None else one.node.columns[-1].name
        text = rendered(planned(self._session, one.node), one.views)
        return f"SELECT {number} AS _asked, {time} AS _time, {', '.join(slots)} FROM ({text})"  # noqa: S608


def _columns(asked: _Asked) -> tuple[Column, ...]:
    return asked.node.columns if asked.time is not None else asked.node.columns[:-1]


def _places(columns: Iterable[Column]) -> list[tuple[str, int]]:
    seen: Counter[str] = Counter()
    places: list[tuple[str, int]] = []
    for column in columns:
        places.append((column.type, seen[column.type]))
        seen[column.type] += 1
    return places


# ---- the comparison --------------------------------------------------------------------------


def checked(session: Any, client: Client, batch: int, cases: Sequence[Case]) -> list[str]:
    """Run a batch; return what is wrong, one text per wrong case."""
    running = Batch(session, client, batch, cases)
    running.run()
    expected = Recomputation(session, running).answers(cases)
    wrong: list[str] = []
    for one in cases:
        why = _compared(one, running.found(one), expected[one.number])
        if why:
            wrong.append(f"batch {batch}, case {one.number}, {why}\n{outlined(one.plan)}")
    return wrong


def _compared(
    one: Case, found: Mapping[int, tuple[Rows, int]], expected: Mapping[int, Rows]
) -> str:
    for time, (rows, errors) in found.items():
        must = expected.get(time, Counter())
        fails = False
        if one.told is not None:
            fails = any(row[-1] for row in must)
            must = Counter({row[:-1]: n for row, n in must.items()})
        if fails != (errors > 0):
            return f"time {time}: {errors} errors, but it {'fails' if fails else 'does not fail'}"
        if not fails and rows != must:
            return f"time {time}:\nmissing {must - rows}\ntoo many {rows - must}"
    return ""
