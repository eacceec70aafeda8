"""Functions of the user's in a passage: columns that are added to the stream before its edges.

    stream in ──▶ SELECT *, what is asked ──▶ SELECT *, answers ──▶ … ──▶ the edges

Python cannot be called in the middle of an expression, nor for some rows only. So each call of an
edge is two columns of the stream, and in the edge's text the answer stands for the call:

    a_<call>   what a row asks: an array of one struct of arguments; an empty one where it does not
               ask; NULL where something fails that is needed to know
    c_<call>   the answer, (v, e): a value, or what the function raised (``catalyst/called.py``)

A row asks if the filters below the call are true of it, and what the call's own filter says without
calling anything: so Spark does it. Beyond that a call is made for every row, also in a branch of a
``CASE`` that is not taken; Spark does that as well. A call that another one needs comes before it.
Equal calls of one lane are one. Where a call has no answer the edge fails on the row.

An edge calls nothing above a generator, an expansion or a window (:func:`why_not_called`): there
may be many rows, or none, for one of its source.

    the edge over its answers  ==  the edge, where Spark calls the functions

Kept by: this module, against Spark in ``tests/spark/test_called_functions.py``. Relied on by:
``passage.py``, ``program.py``, ``catalyst/try_eval.py``. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from headwater.compute.dataflow.edge import Edge
from headwater.compute.dataflow.lanes import LANE
from headwater.compute.dataflow.texts import Names, calls_in, replaced, with_answers
from headwater.compute.ir.conjuncts import conjunction, conjuncts
from headwater.compute.ir.expression import Expression
from headwater.compute.ir.node import Expand, Filter, Generate, Node, Project, Window
from headwater.compute.ir.plan import CALLED

ANSWERING: Final = "headwater_called_"
"""How the names begin under which a session has functions as steps call them."""

VALUE: Final = "v"
RAISED: Final = "e"
_BY_NAME: Final = re.compile(r"(`?\w+`?)\s*=>\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an edge, over the columns of the stream."""

    lane: int
    function: str
    """As plans call it."""
    arguments: tuple[str, ...]
    conditions: tuple[str, ...]
    """Which rows ask: those of which all are true, one after the other."""
    layer: int
    """How many others come before it."""
    without: tuple[str, ...] = ()
    """Where one of these is true, a call before it has no answer, and no row asks."""

    @property
    def asked(self) -> str:
        """The column of what a row asks."""
        return f"a_{self._digest}"

    @property
    def answer(self) -> str:
        """The column of the answer."""
        return f"c_{self._digest}"

    @property
    def _digest(self) -> str:
        parts = (str(self.lane), self.function, *self.conditions, "(", *self.arguments)
        return sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def value(self) -> str:
        """What stands for the call."""
        return f"{self.answer}.{VALUE}"

    @property
    def has_failed(self) -> str:
        """Whether a row has no answer although it needs one."""
        return f"({self.asked} IS NULL OR {self.answer}.{RAISED} IS NOT NULL)"

    @property
    def raising(self) -> str:
        """What fails as the function did."""
        raised = f"{self.answer}.{RAISED}"
        return f"CASE WHEN {raised} IS NOT NULL THEN raise_error({raised}) END"

    @property
    def asking(self) -> str:
        """What a row of the lane asks; it may fail."""
        values = [_BY_NAME.sub(r"\2", text) for text in self.arguments] or ["0"]
        fields = ", ".join(f"'a{n}', {text}" for n, text in enumerate(values))
        text = f"array(named_struct({fields}))"
        for condition in reversed(self.conditions):
            text = f"IF({condition}, {text}, array())"
        return f"IF({' OR '.join(self.without)}, array(), {text})" if self.without else text

    @property
    def called(self) -> str:
        """The call for all rows of the stream; those that ask say so."""
        given = [f"coalesce(size({self.asked}) = 1, false)"]
        for n, text in enumerate(self.arguments):
            by_name = _BY_NAME.fullmatch(text)
            name = f"{by_name[1]} => " if by_name else ""
            given.append(f"{name}get({self.asked}, 0).a{n}")
        return f"{ANSWERING}{self.function.removeprefix(CALLED)}({', '.join(given)})"


@dataclass(frozen=True, slots=True)
class Answers:
    """What an edge calls, and what stands for it in the texts of its steps, from the scan on."""

    calls: tuple[Call, ...]
    said: tuple[Names, ...]

    def of(self, step: int, text: str) -> str:
        """Return a text of a step with the answers for its calls."""
        return with_answers(text, self.said[step]) if self.said else text


def answers(edge: Edge, names: Names) -> Answers:
    """Return what an edge calls; ``names`` are what stands for its source's columns."""
    steps = _steps(edge)
    if not any(CALLED in text for step in steps for text in _texts(step)):
        return Answers((), ())
    return _Collecting(edge.source, names).over(steps)


def call_layers(calls: Sequence[Call], tried: str) -> list[list[str]]:
    """Return what to select before the edges, one ``selectExpr`` after another.

    ``tried`` is the function that is NULL where its argument fails.
    """
    distinct = {call.answer: call for call in calls}.values()
    found: list[list[str]] = []
    for layer in sorted({call.layer for call in distinct}):
        here = [call for call in distinct if call.layer == layer]
        asked = (
            f"CASE WHEN {LANE} = {call.lane} THEN {tried}({call.asking}) END AS {call.asked}"
            for call in here
        )
        found += [["*", *asked], ["*", *(f"{call.called} AS {call.answer}" for call in here)]]
    return found


def why_not_called(edge: Edge) -> str | None:
    """Return why a function cannot be called where an edge does, if so."""
    below = ""
    for step in _steps(edge):
        if isinstance(step, Window):
            below = "a window"
        found = [name for text in _texts(step) for _, name, _ in calls_in(text, CALLED)]
        if found and below:
            return f"{found[0]}() is a function in Python above {below}"
        if isinstance(step, Generate | Expand):
            below = "a generator" if isinstance(step, Generate) else "grouping sets"
    return None


class _Collecting:
    """The calls of one edge, from its scan on."""

    def __init__(self, lane: int, names: Names) -> None:
        self._lane, self._names = lane, names
        self._calls: dict[str, Call] = {}
        """By what stands for them."""
        self._conditions: tuple[str, ...] = ()

    def over(self, steps: Sequence[Node]) -> Answers:
        said = [self._step(step) for step in steps]
        return Answers(tuple(self._calls.values()), tuple(said))

    def _step(self, step: Node) -> Names:
        said: dict[str, str] = {}
        if isinstance(step, Filter):
            parts = conjuncts(step.condition)
            # What calls nothing is asked before anything is called.
            for calling in (False, True):
                some = [part for part in parts if (CALLED in part.text) is calling]
                for part in some:
                    self._collect(part.text, said)
                if some:
                    condition = self._over(conjunction(some), said)
                    self._conditions = (*self._conditions, condition)
            return said
        for text in _texts(step):
            self._collect(text, said)
        if isinstance(step, Project):
            self._names = {o.name: self._over(o.expression, said) for o in step.outputs}
        return said

    def _over(self, expression: Expression, said: Names) -> str:
        """Return the text of an expression over the columns of the stream."""
        text = replaced(with_answers(expression.text, said), self._names)
        return text if expression.is_column else f"({text})"

    def _collect(self, text: str, said: dict[str, str]) -> None:
        for whole, function, arguments in calls_in(text, CALLED):
            if whole in said:
                continue
            for argument in arguments:
                self._collect(argument, said)
            given = tuple(replaced(with_answers(a, said), self._names) for a in arguments)
            needed = " ".join((*given, *self._conditions))
            before = [one for name, one in self._calls.items() if name in needed]
            layer = 1 + max((one.layer for one in before), default=-1)
            without = (text for one in before for text in (*one.without, one.has_failed))
            once = tuple(dict.fromkeys(without))
            call = Call(self._lane, function, given, self._conditions, layer, once)
            self._calls[call.value] = call
            said[whole] = call.value


def _steps(edge: Edge) -> list[Node]:
    *chain, _ = edge.chain()
    return list(reversed(chain))


def _texts(step: Node) -> Iterator[str]:
    match step:
        case Filter():
            yield step.condition.text
        case Project():
            yield from (output.expression.text for output in step.outputs)
        case Expand():
            yield from (expression.text for row in step.projections for expression in row)
        case Generate():
            yield step.generator.text
        case Window():
            yield from (call.text for call in step.calls)
        case _:
            return
