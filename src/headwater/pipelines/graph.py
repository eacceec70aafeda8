"""The datasets of a pipeline and their queries, each after what it reads.

First what is declared is looked at as it stands (:func:`declared`, pure): names that are given
twice, flows into nothing, outputs without a query. Then every query is compiled, in the order in
which queries ask for each other (:class:`Resolution`); a circle is told as one, and a name that
neither the pipeline nor the location has is told with the nearest that they have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa

from headwater.adapter.errors import AdapterError
from headwater.collection.schema import columns
from headwater.compute.declared.auto_cdc import Changes
from headwater.compute.declared.elements import Flow, MistakeInProject, Output, OutputKind, Where
from headwater.compute.declared.guarded import streamed
from headwater.compute.declared.queries import Query
from headwater.pipelines.names import Names


@dataclass(frozen=True, slots=True)
class Declared:
    """An output with the flows into it, under the name that it has here."""

    name: str
    output: Output
    flows: tuple[Flow, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FlowQuery:
    """A flow that has been compiled."""

    name: str
    where: Where
    query: Query

    @property
    def streams(self) -> tuple[str, ...]:
        """The relations of its plan that are streams: of ours, of files, or by position."""
        files = {name for name, each in self.query.outside.items() if each.kind == "file stream"}
        return tuple(
            name
            for name in self.query.plan.relations
            if streamed(name) is not None or name in files or name in self.query.feeds
        )


OUTBOX: Final = "pipeline_sink_{name}"


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Something that a run makes and keeps; temporary views are part of those that read them."""

    name: str
    kind: OutputKind
    output: Output
    flows: tuple[FlowQuery, ...]
    schema: pa.Schema

    @property
    def table(self) -> str:
        """Where its rows are kept; those of a sink until they are delivered."""
        return OUTBOX.format(name=self.name) if self.kind == "sink" else self.name

    @property
    def reads(self) -> tuple[str, ...]:
        """The relations it reads, of the pipeline and of the location."""
        found = (
            streamed(name) or name
            for flow in self.flows
            for name in flow.query.plan.relations
            if name not in flow.query.outside and name not in flow.query.feeds
        )
        return tuple(dict.fromkeys(found))

    @property
    def follows(self) -> tuple[str, ...]:
        """Those of them that it reads as streams."""
        found = (streamed(name) for flow in self.flows for name in flow.streams)
        return tuple(dict.fromkeys(name for name in found if name is not None))


def declared(outputs: Iterable[Output], flows: Iterable[Flow], names: Names) -> dict[str, Declared]:
    """Return the outputs by their names, each with its flows; refuses what does not fit."""
    found: dict[str, Output] = {}
    for output in outputs:
        name = names.plain(output.name)
        if "." in name:
            raise MistakeInProject(
                output.where,
                f"{output.name} is in another database than the pipeline's; there is one schema "
                f"here, so name it without",
            )
        if name in found:
            raise MistakeInProject(
                output.where, f"{name!r} is defined twice, first in {found[name].where}; rename one"
            )
        found[name] = output
    into: dict[str, dict[str, Flow]] = {name: {} for name in found}
    for flow in flows:
        target, name = names.plain(flow.target), names.plain(flow.name)
        if target not in found:
            raise MistakeInProject(
                flow.where, f"flow {name!r} goes into {target!r}, which nothing defines"
                f"{_near(target, found)}"
            )  # fmt: skip
        if name in into[target]:
            raise MistakeInProject(
                flow.where,
                f"flow {name!r} into {target!r} is defined twice, first in "
                f"{into[target][name].where}; rename one",
            )
        into[target][name] = flow
    made = {}
    for name, output in found.items():
        many = output.kind in ("streaming table", "sink")
        if not into[name]:
            raise MistakeInProject(
                output.where, f"nothing flows into {output.kind} {name!r}; add @dp.append_flow"
            )
        if len(into[name]) > 1 and not many:
            second = list(into[name].values())[1]
            raise MistakeInProject(
                second.where, f"{output.kind} {name!r} is its query; no other flow can go into it"
            )
        made[name] = Declared(name, output, tuple(into[name].values()))
    return made


def with_changes(
    outputs: Sequence[Output],
    flows: Sequence[Flow],
    changes: Sequence[Changes],
    session: Any,
    names: Names,
) -> tuple[list[Output], list[Flow]]:
    """Return the same with AUTO CDC flows as what they mean: views over all changes.

    Changes that are no streaming table of the pipeline are first taken into one of their own,
    ``<target>_changes``, so that none of them is forgotten.
    """
    made, found = list(outputs), list(flows)
    targets: set[str] = set()

    def place(name: str) -> int | None:
        known = (index for index, each in enumerate(made) if names.plain(each.name) == name)
        return next(known, None)

    for each in changes:
        target, source = names.plain(each.target), names.plain(each.source)
        if target in targets or any(names.plain(flow.target) == target for flow in flows):
            raise MistakeInProject(each.where, f"another flow goes into {target!r}, too")
        index, kept = place(target), place(source)
        if index is None or made[index].kind != "streaming table":
            raise MistakeInProject(
                each.where,
                f"AUTO CDC goes into {target!r}, which is no streaming table of the pipeline; add "
                f"dp.create_streaming_table({target!r})",
            )
        targets.add(target)
        made[index] = replace(made[index], kind="materialized view")
        if kept is None or made[kept].kind != "streaming table":
            source = f"{target}_changes"
            if place(source) is not None:
                raise MistakeInProject(each.where, f"{source!r} is taken; rename that dataset")
            made.append(Output(source, "streaming table", each.where))
            found.append(Flow(source, source, _stream(session, each.source), each.where))
        found.append(Flow(target, target, each.query(session, source), each.where))
    return made, found


def _stream(session: Any, name: str) -> Callable[[], Any]:
    return lambda: session.readStream.table(name)


def _near(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"; perhaps {near[0]!r}" if near else ""


class Compiles(Protocol):
    """What makes plans of queries: ``compute.declared.queries.Queries``."""

    def add(self, name: str, schema: pa.Schema) -> None:
        """Make a relation known."""
        ...

    def define(self, name: str, frame: Any) -> None:
        """Make a temporary view known."""
        ...

    def frame(self, flow: Flow, provide: Callable[[str], None]) -> Any:
        """Return the DataFrame of a flow."""
        ...

    def query(self, flow: Flow, frame: Any) -> Query:
        """Return its plan."""
        ...

    def declared_schema(self, given: Any, where: Where) -> pa.Schema:
        """Return the columns that an output is declared with."""
        ...


class Resolution:
    """Compiles everything that is declared, in an order of its own finding."""

    def __init__(
        self,
        elements: Mapping[str, Declared],
        compiles: Compiles,
        relation: Callable[[str], pa.Schema | None],
        known: Collection[str],
        names: Names,
    ) -> None:
        self._elements = elements
        self._compiles = compiles
        self._relation = relation
        self._known = known
        self._names = names
        self._under_way: list[str] = []
        self._ready: set[str] = set()
        self._datasets: list[Dataset] = []

    def datasets(self) -> tuple[Dataset, ...]:
        """Return all of them, each after what it reads."""
        for name in self._elements:
            self._resolve(name)
        return tuple(self._datasets)

    def _resolve(self, name: str) -> None:
        if name in self._ready:
            return
        element = self._elements[name]
        if name in self._under_way:
            circle = [*self._under_way[self._under_way.index(name) :], name]
            raise MistakeInProject(
                element.output.where, f"datasets read each other in a circle: {' → '.join(circle)}"
            )
        self._under_way.append(name)
        frames = [
            (flow, self._compiles.frame(flow, partial(self._provide, flow)))
            for flow in element.flows
        ]
        if element.output.kind == "temporary view":
            ((_, frame),) = frames
            self._compiles.define(name, frame)
        else:
            flows = tuple(
                FlowQuery(
                    self._names.plain(flow.name), flow.where, self._compiles.query(flow, made)
                )
                for flow, made in frames
            )
            schema = _schema(element, flows, self._compiles)
            self._datasets.append(Dataset(name, element.output.kind, element.output, flows, schema))
            if element.output.kind != "sink":
                self._compiles.add(name, schema)
        self._under_way.remove(name)
        self._ready.add(name)

    def _provide(self, flow: Flow, asked: str) -> None:
        """Make a name known that a query asks for."""
        wanted = self._names.plain(streamed(asked) or asked)
        element = self._elements.get(wanted)
        if element is not None and element.output.kind == "sink":
            raise MistakeInProject(flow.where, f"{wanted!r} is a sink, which cannot be read")
        if element is not None and wanted not in self._ready:
            self._resolve(wanted)
            return
        try:
            schema = self._relation(wanted) if element is None else None
        except AdapterError as error:
            raise MistakeInProject(flow.where, f"flow {flow.name!r}: {error}") from error
        if schema is None:
            near = _near(wanted, [*self._elements, *self._known])
            raise MistakeInProject(
                flow.where,
                f"flow {flow.name!r} reads {wanted!r}, which neither the pipeline nor the location "
                f"has{near}",
            )
        self._compiles.add(wanted, schema)


def _schema(element: Declared, flows: tuple[FlowQuery, ...], compiles: Compiles) -> pa.Schema:
    """Return the columns of a dataset: those of its query, or of all its flows together."""
    output = element.output
    given = None
    if output.schema is not None:
        given = compiles.declared_schema(output.schema, output.where)
    if output.kind == "materialized view":
        (flow,) = flows
        if given is not None and _types(given) != _types(flow.query.schema):
            raise MistakeInProject(
                output.where,
                f"{element.name!r} is declared with ({_written(given)}), but its query has "
                f"({_written(flow.query.schema)}); make them the same",
            )
        return flow.query.schema
    fields: dict[str, pa.Field] = {}
    if given is not None:
        fields = {field.name: field.with_nullable(True) for field in given}
    for flow in flows:
        for field in flow.query.schema:
            there = fields.get(field.name)
            if there is None and given is None:
                fields[field.name] = field.with_nullable(True)
            elif there is None or _types(pa.schema([there])) != _types(pa.schema([field])):
                told = "has no such column" if there is None else f"has {_written([there])}"
                raise MistakeInProject(
                    flow.where,
                    f"flow {flow.name!r} brings {_written([field])}, and {element.name!r} {told}; "
                    f"make them the same",
                )
    return pa.schema(list(fields.values()))


def _types(schema: pa.Schema) -> dict[str, str]:
    return {column.name: column.type.spark for column in columns(schema)}


def _written(fields: Iterable[pa.Field]) -> str:
    found = columns(pa.schema(list(fields)))
    return ", ".join(f"{column.name} {column.type.spark}" for column in found)
