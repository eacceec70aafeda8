"""Random views on Spark: many at once, stepped together, held against Spark at every time.

    checked(session, client, 3, [case(3, n) for n in range(SIZE)], reopened)  -> what is wrong

The cases of a *batch* (``testing/random_cases.py``) are views of one location. Views of a world
share its arrangements; some have a twin that is created later; every other batch is merged. The
outputs of every sixth batch are not durable: they are lost on the way, and made again.

What a view must hold is asked of Spark with the plan itself, for all times and all cases in one job
(``testing/at_times.py``), and at one time per world by the plan as it is. Where a plan fails on its
rows there must be an error at just these times. Rows are compared bit by bit, but for NaN, of which
Spark has one.

Relied on by: ``tests/spark/test_random_views.py``.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.compute import maintained
from headwater.compute.catalyst import ordered
from headwater.compute.catalyst.render import rendered
from headwater.compute.controller import ViewController
from headwater.compute.dataflow.task import Updates
from headwater.compute.ir.expression import Column
from headwater.compute.ir.node import Node
from headwater.compute.ir.plan import VERSION, OutputColumn, Plan
from headwater.compute.ir.text import outlined
from headwater.compute.maintained import MaintainedView
from headwater.compute.session import MEANING
from headwater.persist.client import Client
from headwater.persist.consolidate import DIFF, TIME
from headwater.persist.decision import collection_named, collection_of
from headwater.persist.spark import arrow_frame
from headwater.persist.spark_parts import Reading, cut, place_of
from headwater.persist.state import bound
from headwater.testing.at_times import AT, TIMES, at_times
from headwater.testing.few_rows import for_few_rows
from headwater.testing.merging import merge_everything
from headwater.testing.random_cases import Case, Row, World, world

TWINS: Final = 10
"""How many cases of every sixth batch have a twin, created when they have been stepped.

It hydrates over arrangements that are older than it, since its elder needs the same.
"""
PLAIN_EVERY: Final = 8
"""Every so many cases is also asked as it is, at one time: that proves ``at_times``."""

Rows = Counter[Row]


# ---- a batch ---------------------------------------------------------------------------------


@dataclass
class Batch:
    """Cases over their worlds, from the first row to the last step."""

    session: Any
    client: Client
    number: int
    cases: Sequence[Case]
    reopened: Callable[[], Client]
    """Opens the location in the place of whoever had it."""
    range_rows: int | None = None
    """First steps are run by ranges of so many rows, if it is given; each alone."""
    twins: list[Case] = field(default_factory=list)
    views: list[MaintainedView] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.controller = self._controller()
        self.worlds = {one.world: world(self.number, one.world) for one in self.cases}

    def run(self) -> None:
        """Create the views and step them three times."""
        self._write(0)
        self._create(self.cases)
        self._write(1)
        self._step()
        if self.number % 6 == 3:
            pairs = list(zip(self.cases, self.views, strict=True))
            pairs.sort(key=lambda pair: len(pair[1].arrangements), reverse=True)
            self.twins = [replace(one, is_twin=True) for one, _ in pairs[:TWINS]]
            self._create(self.twins)
        self._write(2)
        self._step()
        if self.number % 2:
            self._merge()
        if self.volatile:
            self._lose()
        self._write(3)
        self._step()

    @property
    def volatile(self) -> bool:
        """Whether the outputs go with the process."""
        return self.number % 6 == 4

    def _lose(self) -> None:
        """Open the location as the next process does, and let it begin the views again."""
        self.client.core.stop(release=False)
        self.client = self.reopened()
        self.controller = self._controller()
        begun = self.controller._renewed(self.controller.views())
        self.views = [view for view in begun if isinstance(view, MaintainedView)]
        assert len(self.views) == len(self.cases), self.controller.failures()
        state = self.client.core.state
        uppers = {state.upper(collection_of(state, view.id)) for view in self.views}
        starts = {Frontier.of(view.start) for view in self.views}
        assert uppers == starts, "they begin where they began"

    def _controller(self) -> ViewController:
        controller = ViewController(self.client, self.session)
        if self.range_rows is not None:
            controller._stepper.range_rows = self.range_rows
        return controller

    def _write(self, step: int) -> None:
        for one in self.worlds.values():
            one.write(self.client, step)

    def _create(self, cases: Iterable[Case]) -> None:
        for one in cases:
            names = self.worlds[one.world].names
            view = self.controller.create_view(
                one.name,
                planned(self.session, one.plan),
                relations=names,
                durable=not self.volatile,
            )
            assert isinstance(view, MaintainedView), outlined(one.plan)
            self.views.append(view)

    def _step(self) -> None:
        if self.range_rows is not None:
            self.controller.run_once()
        failures = step_together(self.client, self.controller, self.views)
        assert not failures, "\n".join(failures)

    def _merge(self) -> None:
        arranged = {gid for view in self.views for gid in (*view.shared, *view.stored.values())}
        assert merge_everything(self.client, arranged) or not arranged, "nothing is compacted"
        merge_everything(self.client)

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
            # A row that is there less than no times is as wrong as one that is missing.
            held = Counter({row: n for row, n in there.items() if n})
            answers[time] = held, sum(diff for at, diff in raised if at <= time)
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
    if first:
        controller._stepper._bisected(first, [step.view for step in first])
    failures = list(controller.failures().values())
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

    def __init__(self, session: Any, worlds: Iterable[World]) -> None:
        # Everything is in one partition: then nothing is ever exchanged.
        self._session = for_few_rows(session.newSession())
        self._views: dict[int, dict[str, str]] = {}
        self._plain: dict[int, tuple[int, dict[str, str]]] = {}
        for one in worlds:
            self._register(one)

    def _register(self, of: World) -> None:
        last = of.uppers[-1] - 1
        tables = {relation: of.at_all_times(relation) for relation in of.relations}
        tables[TIMES] = pa.table({AT: pa.array(range(last + 1), pa.int64())})
        self._views[of.number] = {}
        plain: dict[str, str] = {}
        for relation, table in tables.items():
            name = f"{relation}_of_{of.number}"
            frame = arrow_frame(self._session, table).coalesce(1)
            frame.createOrReplaceTempView(name)
            self._views[of.number][relation] = name
            frame.where(f"{AT} = {last}").createOrReplaceTempView(f"{name}_plain")
            plain[relation] = f"{name}_plain"
        self._plain[of.number] = last, plain

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


def checked(
    session: Any,
    client: Client,
    batch: int,
    cases: Sequence[Case],
    reopened: Callable[[], Client],
    range_rows: int | None = None,
) -> list[str]:
    """Run a batch; return what is wrong, one text per wrong case."""
    running = Batch(session, client, batch, cases, reopened, range_rows)
    with ThreadPoolExecutor(1) as beside:
        # What must be depends on the worlds alone; Spark plans both at once.
        asked = Recomputation(session, running.worlds.values())
        answered = beside.submit(asked.answers, cases)
        running.run()
        expected = answered.result()
    wrong: list[str] = []
    for one in (*cases, *running.twins):
        why = _compared(one, running.found(one), expected[one.number])
        if why:
            wrong.append(f"batch {batch}, {one.name}, {why}\n{outlined(one.plan)}")
    running.client.stop()
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
