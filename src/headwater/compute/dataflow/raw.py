"""Rows of a stored collection with what is still to be done to them.

    filter and project, over and over, of a scan   =   steps of (the scan)

An operator that arranges its input reads such a collection *as it is*, so that the arrangement has
no filter, keeps every column, and is shared by all views; the steps are applied to its output. That
is right for inner joins and for the left of a semi or anti join, because filters and computations
of one input commute with them. It is possible where the keys are columns of the collection itself.

**Errors.** A row that the steps fail on is an error of the view, as it is of the plan, also if it
has no partner and never gets to them. So where a step may fail, the rows of the collection (in a
step, its delta) are given to the steps once more, for their failures alone (:func:`judged`).

A cast which keeps the form of a key (``collection/key.py``) and every value does not stand in the
way: INT 1 and BIGINT 1 have the same hash and are found by each other.

Kept by: this module. Relied on by: ``lower_join.py``, ``lower_match.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.compute.dataflow.flow import (
    Builder,
    Flow,
    computed,
    filtered,
    is_key,
    kept,
    projected,
)
from headwater.compute.ir.expression import BOOLEAN, NAME, Column, Expression, Field, Named
from headwater.compute.ir.fallible import may_fail
from headwater.compute.ir.node import Filter, Node, Project, Scan
from headwater.persist.consolidate import TIME

_CAST: Final = re.compile(rf"CAST\(({NAME.pattern}) AS ([A-Z]+(?:\([0-9]+,[0-9]+\))?)\)")
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),([0-9]+)\)")
_WIDTH: Final = {"tinyint": 1, "smallint": 2, "int": 3, "bigint": 4}


@dataclass(frozen=True, slots=True)
class Keep:
    """The rows for which this is true."""

    condition: Expression


@dataclass(frozen=True, slots=True)
class Compute:
    """One column more."""

    output: Named


Step = Keep | Compute


def live_before(steps: Sequence[Step], wanted: Iterable[str]) -> frozenset[str]:
    """Return the columns that must be there before the steps for these to be there after them."""
    live = set(wanted)
    for step in reversed(steps):
        match step:
            case Keep(condition):
                live.update(condition.columns)
            case Compute(output):
                if output.name in live:
                    live.remove(output.name)
                    live.update(output.expression.columns)
    return frozenset(live)


def stepped(flow: Flow, steps: Sequence[Step], wanted: Sequence[str]) -> Flow:
    """Return the flow after the steps, with the wanted columns in this order."""
    for number, step in enumerate(steps):
        match step:
            case Keep(condition):
                flow = filtered(flow, condition)
            case Compute(output):
                if output.name in live_before(steps[number + 1 :], wanted):
                    flow = computed(flow, (output,))
    return kept(flow, wanted)


def judged(build: Builder, of: Raw, wanted: Sequence[Column], used: Iterable[str]) -> Flow:
    """Return no rows, with the wanted columns, but the failures of the steps on every row.

    ``used`` are names that are asked for after the steps: what is computed for nobody does not
    fail. Nothing, if no step can.
    """
    asked = frozenset(used)
    if not of.may_fail(asked):
        return ()
    made = [o for s in of.steps if isinstance(s, Compute) and (o := s.output).name in asked]
    shown = [output.name for output in made]
    live = live_before(of.steps, shown)
    fields = tuple(field for field in of.scan.fields if field.column.name in live)
    rows = stepped(build.scanned(Scan(of.scan.relation, fields)), of.steps, shown)
    # Never true, which no optimizer knows: one that did would not compute what it is asked of.
    hashed = ", ".join([TIME, *(_hashable(output) for output in made)])
    never = Expression(
        f"(xxhash64({hashed}) > 9223372036854775807L)", BOOLEAN, False, tuple(sorted(shown))
    )
    nulls = [
        Named(c.name, Expression(f"CAST(NULL AS {c.type})", c.type, c.nullable)) for c in wanted
    ]
    return projected(filtered(rows, never), nulls)


def _hashable(output: Named) -> str:
    # A map has no hash, nor has what is always NULL.
    type_ = output.expression.type
    return f"CAST({output.name} AS STRING)" if "map<" in type_ or type_ == "void" else output.name


@dataclass(frozen=True, slots=True)
class Raw:
    """A scan and the steps that make of it what a plan's operator yields."""

    scan: Scan
    steps: tuple[Step, ...]
    plain: Mapping[str, str]
    """Columns that are one of the scan, if only under another name or in a wider type."""

    @property
    def names(self) -> frozenset[str]:
        """Every name that is used on the way."""
        made = (step.output.name for step in self.steps if isinstance(step, Compute))
        return frozenset((*(column.name for column in self.scan.columns), *made))

    def may_fail(self, wanted: Iterable[str]) -> bool:
        """Whether a step that these columns need may fail on a row."""
        types = {column.name: column.type for column in self.scan.columns}
        asked = tuple(wanted)
        for number, step in enumerate(self.steps):
            match step:
                case Keep(condition):
                    if may_fail(condition, types):
                        return True
                case Compute(output):
                    needed = output.name in live_before(self.steps[number + 1 :], asked)
                    if needed and may_fail(output.expression, types):
                        return True
                    types[output.name] = output.expression.type
        return False

    def column(self, name: str) -> Column:
        """Return the scan's column of this name."""
        return next(column for column in self.scan.columns if column.name == name)


def raw(node: Node) -> Raw | None:
    """Return the operator as steps over a scan, or ``None`` if it is none or a name is used twice.

    Columns that are only picked and renamed need no step: they are fields under another name.
    """
    match node:
        case Scan():
            return Raw(node, (), {column.name: column.name for column in node.columns})
        case Filter():
            below = raw(node.input)
            if below is None:
                return None
            return Raw(below.scan, (*below.steps, Keep(node.condition)), below.plain)
        case Project():
            below = raw(node.input)
            if below is None:
                return None
            return _picked(below, node) or _projected(below, node)
        case _:
            return None


def _picked(below: Raw, node: Project) -> Raw | None:
    sources = [output.expression.text for output in node.outputs]
    plain = all(output.expression.is_column for output in node.outputs)
    if below.steps or not plain or len(set(sources)) != len(sources):
        return None
    fields = {field.column.name: field.field for field in below.scan.fields}
    return raw(
        Scan(
            below.scan.relation,
            tuple(Field(fields[output.expression.text], output.column) for output in node.outputs),
        )
    )


def _projected(below: Raw, node: Project) -> Raw | None:
    names = set(below.names)
    steps = list(below.steps)
    plain: dict[str, str] = {}
    types = {column.name: column.type for column in node.input.columns}
    for output in node.outputs:
        source = uncast(output.expression, types)
        if source in below.plain:
            plain[output.name] = below.plain[source]
        if output.expression.text == output.name:
            continue
        if output.name in names:
            return None
        names.add(output.name)
        steps.append(Compute(output))
    return Raw(below.scan, tuple(steps), plain)


def uncast(expression: Expression, types: Mapping[str, str]) -> str:
    """Return the column that an expression is, perhaps in a wider type; else its text."""
    if expression.is_column:
        return expression.text
    found = _CAST.fullmatch(expression.text)
    if found is None or expression.columns != (found[1],):
        return expression.text
    return found[1] if _widens(types[found[1]], expression.type) else expression.text


def _widens(narrow: str, wide: str) -> bool:
    """Whether a cast keeps every value, its order and its form as a key."""
    if narrow in _WIDTH and wide in _WIDTH:
        return _WIDTH[narrow] <= _WIDTH[wide]
    a, b = _DECIMAL.fullmatch(narrow), _DECIMAL.fullmatch(wide)
    if a is None or b is None:
        return narrow == wide or (narrow, wide) == ("float", "double")
    digits, scale, more_digits, more_scale = int(a[1]), int(a[2]), int(b[1]), int(b[2])
    return more_scale >= scale and more_digits - more_scale >= digits - scale


def plain_keys(of: Raw, keys: Sequence[Expression], types: Mapping[str, str]) -> list[str] | None:
    """Return the scan's columns that these keys are, or ``None`` if one is none of them."""
    found: list[str] = []
    for key in keys:
        name = of.plain.get(uncast(key, types))
        if name is None or not is_key(of.column(name)) or name in found:
            return None
        found.append(name)
    return found
