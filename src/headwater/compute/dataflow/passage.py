"""Passages: the edges between two Python stages of a step, as one expression of Spark SQL.

    stream in  ──▶  SELECT inline(CASE WHEN __lane = 3 THEN <rows> WHEN … END)  ──▶  stream out

One pass over one stream: each row is looked at by its lane, and every edge that leaves this lane
contributes the rows of its target lane that it makes of it. A branch of a CASE is evaluated for
rows of its lane only; other lanes' values would make casts fail. Lanes in ``passed``, and those
with payloads, come out as they went in.

An edge is a chain of filters, projections, generators and expansions; its text is one expression
that yields the array of its rows, made from the last step backwards:

    Filter c      IF(c, rest, array())
    Project       rest, each name replaced by its expression
    Expand        the rests of the projections, one after the other
    Generate      flatten(transform(<the generator's array>, item -> rest))
    the end       array(named_struct(the slots of the target lane))

Replacing keeps everything in generated code, where a lambda is interpreted; but a long expression
that is used many times is bound once, by a lambda over an array of one struct.

An edge may begin with a window over the versions that its lane has; the windows of all edges are
columns added to the stream before (``passage_window.py``). What follows one cannot fail. So are the
answers of functions in Python (``passage_calls.py``).

**Errors are data.** Where an expression fails the whole edge yields, for this row, the source's row
in the twin lane ``failed_lane(edge)`` instead: ``headwater_try`` (``catalyst/try_eval.py``) is NULL
just there, since an edge's array never is. A column of type ``void`` (``assert_true(…)``) is only
computed because it may fail.

    rows of edge(row)  ==  rows of its node over this row (``catalyst/render.py``), or its failure

Kept by: this module; ``tests/spark/test_passages.py`` compares. Relied on by: the runner of steps.
Pure: it makes texts, Spark reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import msgspec

from headwater.collection.types import by_spark
from headwater.compute.dataflow.edge import Edge, Lane
from headwater.compute.dataflow.lanes import LANE, PAYLOAD_LANES, Stream, failed_lane
from headwater.compute.dataflow.passage_calls import Answers, answers, call_layers
from headwater.compute.dataflow.texts import (
    Names,
    call_of,
    cheap,
    is_call,
    mentioned,
    replaced,
    substituted,
)
from headwater.compute.ir.expression import Column, Expression
from headwater.compute.ir.node import Expand, Filter, Generate, Node, Project, Window
from headwater.compute.ir.refusal import InvalidPlan
from headwater.persist.consolidate import DIFF, TIME

TRY: Final = "headwater_try"
"""The session's function that is NULL where its argument fails."""

BIND_FROM: Final = 600
"""So many characters of repetition are worth a lambda."""

VOID: Final = "void"
_EMPTY: Final = "array()"
_GENERATORS: Final = frozenset({"explode", "posexplode", "inline", "stack"})

Rest = Callable[[Names], str]


@dataclass(frozen=True, slots=True)
class NumberedEdge:
    """An edge between lanes of streams; ``number`` is its own among all edges of a step."""

    number: int
    source: int
    node: Node
    target: int

    @property
    def edge(self) -> Edge:
        """The edge."""
        return Edge(self.source, self.node, self.target)

    @property
    def can_fail(self) -> bool:
        """Whether it may fail on a row: whether it computes on its own."""
        edge = self.edge
        return edge.picked() is None and edge.window is None

    def windowed(self) -> dict[str, str]:
        """Return for each call of the window that it begins with the column that has it."""
        window = self.edge.window
        calls = window.calls if window is not None else ()
        return {call.name: f"w_{self.number}_{n}" for n, call in enumerate(calls)}


def passage_stream(
    edges: Sequence[NumberedEdge], lanes: Mapping[int, Lane], passed: Collection[int] = ()
) -> Stream:
    """Return the stream that a passage makes: targets, what passes, and rows that failed."""
    targets = {numbered.target: lanes[numbered.target] for numbered in edges}
    twins = {
        failed_lane(numbered.number): lanes[numbered.source]
        for numbered in edges
        if numbered.can_fail
    }
    return Stream({**{lane: lanes[lane] for lane in passed}, **targets, **twins})


def passage_sql(
    edges: Sequence[NumberedEdge],
    stream_in: Stream,
    stream_out: Stream,
    passed: Collection[int] = (),
) -> list[str]:
    """Return what to select from the stream that comes in, for ``selectExpr``.

    The stream has the layers of ``passage_window.py`` and of :func:`called_layers` by then.
    """
    made: dict[int, list[str]] = {}
    for lane in sorted({*passed, *PAYLOAD_LANES}):
        values = _slots(stream_in, lane)
        made.setdefault(lane, []).append(f"array({_row(stream_out, lane, values)})")
    for numbered in edges:
        text = guarded(numbered, stream_in, stream_out)
        made.setdefault(numbered.source, []).append(text)
    branches = [
        f"WHEN {LANE} = {lane} THEN {texts[0] if len(texts) == 1 else _concat(texts)}"
        for lane, texts in made.items()
    ]
    return [f"inline(CASE {' '.join(branches)} END)"]


def guarded(numbered: NumberedEdge, stream_in: Stream, stream_out: Stream) -> str:
    """Return the array of an edge's rows, or of the one row that says it failed."""
    text = edge_sql(numbered.edge, stream_in, stream_out, numbered.windowed())
    if not numbered.can_fail:
        return text
    values = _slots(stream_in, numbered.source)
    failed = f"array({_row(stream_out, failed_lane(numbered.number), values)})"
    text = f"coalesce({TRY}({text}), {failed})"
    unanswered = [call.has_failed for call in answers_of(numbered.edge, stream_in).calls]
    return f"IF({' OR '.join(unanswered)}, {failed}, {text})" if unanswered else text


def edge_sql(
    edge: Edge, stream_in: Stream, stream_out: Stream, windowed: Mapping[str, str] | None = None
) -> str:
    """Return the array of the rows that an edge makes of a row of its source; it may fail.

    ``windowed`` are the columns that have the calls of its window.
    """
    *chain, _ = edge.chain()
    if edge.window is not None:
        chain.pop()
    names = {**lane_names(edge, stream_in), **(windowed or {})}
    steps = tuple(reversed(chain))
    return _Chain(steps, edge, stream_out, answers_of(edge, stream_in)).text(0, names)


def answers_of(edge: Edge, stream: Stream) -> Answers:
    """Return what an edge calls in Python, over the columns of the stream that comes in."""
    return answers(edge, lane_names(edge, stream))


def called_layers(edges: Sequence[NumberedEdge], stream: Stream) -> list[list[str]]:
    """Return what to select from the stream before edges that call functions in Python."""
    calls = [call for numbered in edges for call in answers_of(numbered.edge, stream).calls]
    return call_layers(calls, TRY)


def lane_names(edge: Edge, stream: Stream) -> dict[str, str]:
    """Return what stands for each column of an edge's source."""
    *_, scan = edge.chain()
    values = _slots(stream, edge.source)
    return {
        column.name: _read(value, column)
        for column, value in zip(scan.columns, values, strict=True)
    }


# ---- rows ------------------------------------------------------------------------------------


def _slots(stream: Stream, lane: int) -> list[str]:
    return [place or "NULL" for place in stream.places(lane)]


def _read(value: str, column: Column) -> str:
    # An interval of hours lies in a slot for all intervals of days to seconds.
    if value == "NULL" or column.type == column.sql_type.spark:
        return value
    return f"CAST({value} AS {column.type})"


def _row(stream: Stream, lane: int, values: Sequence[str]) -> str:
    """Return the row of a lane with these values: the type is the same for all lanes."""
    columns = stream.lanes[lane].columns
    filled: dict[str, str] = {}
    for column, place, value in zip(columns, stream.places(lane), values, strict=True):
        if place is not None:
            spark = column.sql_type.spark
            filled[place] = value if column.type == spark else f"CAST({value} AS {spark})"
    fields = [f"'{LANE}', {lane}", f"'{TIME}', {TIME}", f"'{DIFF}', {DIFF}"]
    for slot in stream.slots:
        value = filled.get(slot.name) or f"CAST(NULL AS {slot.type.spark})"
        fields.append(f"'{slot.name}', {value}")
    return f"named_struct({', '.join(fields)})"


def _asking(voids: Sequence[str], array: str) -> str:
    """Return the array, where these, which are always NULL and have no slot, do not fail."""
    conditions = [f"{text} IS NULL" for text in dict.fromkeys(voids) if text != "NULL"]
    return f"IF({' AND '.join(conditions)}, {array}, {_EMPTY})" if conditions else array


def _concat(arrays: Sequence[str]) -> str:
    return arrays[0] if len(arrays) == 1 else f"concat({', '.join(arrays)})"


# ---- chains ----------------------------------------------------------------------------------


class _Chain:
    """The steps of one edge, from the scan on."""

    def __init__(
        self, steps: tuple[Node, ...], edge: Edge, stream: Stream, answered: Answers
    ) -> None:
        self.steps, self.edge, self.stream, self.answered = steps, edge, stream, answered
        self._numbers = count(1)

    def text(self, at: int, names: Names) -> str:
        """Return the array of what the steps from ``at`` on make, where names stand for these."""
        if at == len(self.steps):
            values = [names[column.name] for column in self.edge.node.columns]
            row = f"array({_row(self.stream, self.edge.target, values)})"
            columns = self.stream.lanes[self.edge.target].columns
            pairs = zip(columns, values, strict=True)
            return _asking([value for column, value in pairs if column.type == VOID], row)
        step = self.steps[at]

        def rest(then: Names) -> str:
            return self.text(at + 1, then)

        match step:
            case Filter():
                condition = self._over(at, step.condition, names)
                return f"IF({condition}, {rest(names)}, {_EMPTY})"
            case Project():
                outputs = {o.name: o.expression for o in step.outputs}
                return self._bound(at, [outputs], names, rest)
            case Expand():
                made = [column.name for column in step.columns]
                rows = [dict(zip(made, row, strict=True)) for row in step.projections]
                return self._bound(at, rows, names, rest)
            case Generate():
                return self._generate(at, step, names, rest)
            case _:
                raise InvalidPlan(f"a {type(step).__name__} is not linear")

    def _bound(
        self, at: int, rows: Sequence[Mapping[str, Expression]], names: Names, rest: Rest
    ) -> str:
        """Return the rests for each of these rows of expressions, which take the names' place."""
        texts = [{name: self._over(at, e, names) for name, e in row.items()} for row in rows]
        if self._repetition(at, texts) < BIND_FROM:
            return _concat([rest(text) for text in texts])
        types = {column.name: column.type for column in self.steps[at].columns}
        variable = f"row{next(self._numbers)}"
        structs = [
            ", ".join(f"'{n}', {text}" for n, text in row.items() if types[n] != VOID)
            for row in texts
        ]
        array = f"array({', '.join(f'named_struct({fields})' for fields in structs)})"
        voids = [n for n, times in self._uses(at).items() if times and types.get(n) == VOID]
        array = _asking([row[n] for row in texts for n in voids], array)
        then = rest({n: "NULL" if types[n] == VOID else f"{variable}.{n}" for n in types})
        return f"flatten(transform({array}, {variable} -> {then}))"

    def _repetition(self, at: int, rows: Sequence[Names]) -> int:
        """Return about how many characters are there more than once if names are replaced."""
        uses = self._uses(at)
        own = sum(
            (uses.get(name, 0) - 1) * len(text)
            for row in rows
            for name, text in row.items()
            if uses.get(name, 0) > 1 and not cheap(text)
        )
        later = sum(len(e.text) for step in self.steps[at + 1 :] for e in _expressions(step))
        return own + (len(rows) - 1) * later

    def _uses(self, at: int) -> dict[str, int]:
        """Return how often each column of the step at ``at`` is mentioned after it."""
        uses = dict.fromkeys((column.name for column in self.steps[at].columns), 0)
        for step in self.steps[at + 1 :]:
            for expression in _expressions(step):
                for name in mentioned(expression.text):
                    if name in uses:
                        uses[name] += 1
            if not isinstance(step, Filter | Generate):
                return uses
        for column in self.edge.node.columns:
            uses[column.name] = uses.get(column.name, 0) + 1
        return uses

    def _over(self, at: int, expression: Expression, names: Names) -> str:
        text = self.answered.of(at, expression.text)
        return substituted(msgspec.structs.replace(expression, text=text), names)

    def _generate(self, at: int, step: Generate, names: Names, rest: Rest) -> str:
        function, arguments = call_of(self.answered.of(at, step.generator.text))
        outer = step.outer or function.endswith("_outer")
        function = function.removesuffix("_outer")
        outputs = [column.name for column in step.outputs]
        if function == "stack":
            rows = _stacked(arguments, step)
            return _concat(
                [rest({**names, **{n: replaced(t, names) for n, t in row.items()}}) for row in rows]
            )
        array = f"({replaced(arguments[0], names)})"
        number = next(self._numbers)
        item, position = f"item{number}", f"pos{number}"
        positions = [position] if function == "posexplode" else []
        made = outputs[len(positions) :]
        if function == "inline":
            element = by_spark(step.generator.type).parts[0][1]
            values = [f"{item}.`{name.replace('`', '``')}`" for name, _ in element.parts]
        elif len(made) == 2:  # of a map
            array = f"map_entries{array}"
            values = [f"{item}.key", f"{item}.value"]
        else:
            values = [item]
        some = f"size({array}) > 0"
        if outer:
            # What is made of a NULL is all NULL, but the position is a number.
            positions = [f"IF({some}, {p}, NULL)" for p in positions]
            items = f"IF({some}, {array}, array(NULL))"
        else:
            items = f"coalesce({array}, {_EMPTY})"
        variables = f"({item}, {position})" if positions else item
        then = rest({**names, **dict(zip(outputs, [*positions, *values], strict=True))})
        return f"flatten(transform({items}, {variables} -> {then}))"


def _stacked(arguments: Sequence[str], step: Generate) -> list[dict[str, str]]:
    rows, cells = int(arguments[0]), arguments[1:]
    width = len(step.outputs)
    padded = [*cells, *["NULL"] * (rows * width - len(cells))]
    return [
        {
            column.name: f"CAST({padded[row * width + n]} AS {column.type})"
            for n, column in enumerate(step.outputs)
        }
        for row in range(rows)
    ]


def _expressions(step: Node) -> tuple[Expression, ...]:
    match step:
        case Filter():
            return (step.condition,)
        case Project():
            return tuple(output.expression for output in step.outputs)
        case Expand():
            return tuple(e for row in step.projections for e in row)
        case Generate():
            return (step.generator,)
        case _:
            raise InvalidPlan(f"a {type(step).__name__} is not linear")


def _texts(step: Node) -> tuple[str, ...]:
    if isinstance(step, Window):
        return tuple(call.text for call in step.calls)
    return tuple(expression.text for expression in _expressions(step))


# ---- which edges there can be ----------------------------------------------------------------


def why_not_linear(node: Node) -> str | None:
    """Return why a filter, projection, generator, expansion or window cannot be in an edge, if so.

    The node's inputs are not looked at.
    """
    if not isinstance(node, Filter | Project | Generate | Expand | Window):
        return f"a {type(node).__name__.lower()} is not linear"
    if isinstance(node, Generate):
        return _why_no_array(node)
    return None


def _why_no_array(node: Generate) -> str | None:
    text = node.generator.text
    function = call_of(text)[0].removesuffix("_outer") if is_call(text) else text
    if function not in _GENERATORS:
        return f"{function} has no form as an array"
    if function == "stack" and not re.fullmatch(r"\d+", call_of(node.generator.text)[1][0]):
        return "stack() of a number of rows that is no literal"
    return None
