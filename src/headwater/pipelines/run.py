"""A pipeline on a location: what would be done (:meth:`Pipeline.decisions`), and the doing.

The order of a run:

    1. views go whose inputs are replaced by ones with other columns: they cannot be taken along
    2. dataset by dataset, each after what it reads: tables of what is outside are brought up to
       date, views are made or replaced, streaming tables and sinks get what arrived
    3. every view that was asked for is waited for, until it has all that was written before

Whatever stops in between, the next run goes on: a decision is made from what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headwater.adapter import catalog, replacement
from headwater.adapter.sql.names import quoted, quoted_name
from headwater.api import Database
from headwater.api.lazy_spark import LazySpark
from headwater.base.errors import HeadwaterError
from headwater.compute import definition
from headwater.compute.declared.arrivals import require_appendable
from headwater.compute.declared.elements import Flow, MistakeInProject, Output
from headwater.compute.declared.project import Registry, shown
from headwater.compute.declared.queries import Queries
from headwater.compute.ir.plan import encoded
from headwater.compute.ir.refusal import Refused
from headwater.persist.state import State
from headwater.pipelines import flows, inputs, sinks, sql_file
from headwater.pipelines.graph import Dataset, Resolution, declared, with_changes
from headwater.pipelines.ledger import INPUT, TABLES, Ledger
from headwater.pipelines.names import Names
from headwater.pipelines.plan import (
    CannotRun,
    Decision,
    Present,
    Selection,
    Wanted,
    decided,
)
from headwater.pipelines.spec import Spec

LOOK_SECONDS: Final = 0.5


class DatasetFailed(HeadwaterError):
    """A dataset that was made and cannot be kept."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"dataset {name!r} does not advance: {why}")


@dataclass(frozen=True, slots=True)
class Done:
    """What was done with a dataset; ``rows``: how many were appended, or changed outside."""

    decision: Decision
    rows: int | None = None


Tell = Callable[[str, str], None]
"""Is told which dataset is at work, and with what."""
Count = Callable[[int, int, int], None]
"""Is told how much is done of how much there is to do, and how many rows that moved."""


class Pipeline:
    """A project and the location that it runs on; ``database`` None: there is none yet."""

    def __init__(self, spec: Spec, database: Database | None, spark: LazySpark) -> None:
        self._spec = spec
        self._database = database
        self._ledger = Ledger(database)
        self._names = Names(spec.catalog, spec.database)
        self._queries = Queries(spark.session, spec.root, self._names.plain, self._names.rewritten)
        self._datasets: dict[str, Dataset] = {}

    # ---- the project ---------------------------------------------------------------------------

    def load(self) -> tuple[Dataset, ...]:
        """Read the project's files, and compile its queries."""
        spec = self._spec
        self._queries.configure(spec.configuration, f"{spec.file}: configuration")
        outputs, found_flows = self._declarations()
        elements = declared(outputs, found_flows, self._names)
        known = (
            [] if self._database is None else [*self._database.tables(), *self._database.views()]
        )
        resolution = Resolution(elements, self._queries, self._relation, known, self._names)
        datasets = resolution.datasets()
        for dataset in datasets:
            _check(dataset)
        self._datasets = {dataset.name: dataset for dataset in datasets}
        return datasets

    def _declarations(self) -> tuple[list[Output], list[Flow]]:
        root = self._spec.root
        registry = Registry(root)
        outputs, found = registry.outputs, registry.flows
        for file in self._spec.files():
            if file.suffix == ".py":
                self._queries.import_file(file, registry)
                continue
            try:
                text = file.read_text("utf-8")
            except UnicodeDecodeError as error:
                raise MistakeInProject(shown(file, root), f"it is no UTF-8: {error}") from error
            for element in sql_file.elements(text, shown(file, root)):
                match element:
                    case Output():
                        outputs.append(element)
                    case Flow():
                        found.append(element)
                    case _:
                        registry.changes.append(element)
        return with_changes(outputs, found, registry.changes, self._queries.session, self._names)

    def _relation(self, name: str) -> pa.Schema | None:
        """Return the columns of a relation of the location that is not the pipeline's."""
        if self._database is None:
            return None
        state = self._database.state()
        found = catalog.find(state, name)
        if found is None:
            return None
        if not found.collection or found.kind == "index":
            raise CannotRun(
                f"the pipeline reads {name!r}, a {found.kind}; only tables, sources and "
                f"materialized views can be read"
            )
        return catalog.schemas(state, (name,))[name]

    # ---- what would be done --------------------------------------------------------------------

    def decisions(self, selection: Selection) -> tuple[Decision, ...]:
        """Return what a run would do."""
        folded = Selection(
            tuple(map(self._names.plain, selection.refresh)),
            tuple(map(self._names.plain, selection.full)),
            selection.full_all,
        )
        wanted = [
            Wanted(each.name, each.kind, each.reads, each.follows)
            for each in self._datasets.values()
        ]
        folded.require_known([each.name for each in wanted])
        owners = self._ledger.owners()
        present = {}
        for dataset in self._datasets.values():
            there = self._present(dataset, owners)
            if there is not None:
                present[dataset.name] = there
        return decided(wanted, present, folded)

    def _present(self, dataset: Dataset, owners: Mapping[str, tuple[str, str]]) -> Present | None:
        name, database = dataset.name, self._database
        if name in TABLES:
            raise MistakeInProject(dataset.output.where, f"{name!r} is taken; rename the dataset")
        found = None if database is None else catalog.find(database.state(), dataset.table)
        if database is None or found is None:
            return None
        pipeline, kind = owners.get(name, ("", ""))
        view = found.kind == "materialized view"
        if pipeline != self._spec.name:
            whose = f"of pipeline {pipeline!r}" if pipeline else "no pipeline's"
            raise CannotRun(
                f"{found.kind} {name!r} is there already and is {whose}; rename the dataset, or "
                f"drop it"
            )
        if view != (dataset.kind == "materialized view") or (kind and kind != dataset.kind):
            raise CannotRun(
                f"{name!r} is there as a {kind or found.kind} and is now declared as a "
                f"{dataset.kind}; drop it (DROP {found.kind.upper()} {name} CASCADE) and run again"
            )
        if view:
            return Present(self._is_same(dataset), self._view_news(dataset))
        if dataset.kind == "sink":
            # Its columns may change: what it has is not kept here.
            news = sinks.waiting(database, dataset) or flows.news(database, self._ledger, dataset)
            return Present(news=news)
        there = catalog.schemas(database.state(), (name,))[name]
        return Present(_names_and_types(there) == _names_and_types(dataset.schema),
                       flows.news(database, self._ledger, dataset))  # fmt: skip

    def _is_same(self, dataset: Dataset) -> bool:
        """Whether the view that is kept is the one declared."""
        assert self._database is not None
        state = self._database.state()
        (flow,) = dataset.flows
        stored = _stored(state, dataset.name)
        if stored is None or stored.plan != encoded(flow.query.plan):
            return False
        for name in flow.query.plan.relations:
            found = catalog.find(state, name)
            if found is None or state.names.get(found.collection) != stored.relations.get(name):
                return False
        return True

    def _view_news(self, dataset: Dataset) -> str:
        """Return what a view does not have yet."""
        assert self._database is not None
        (flow,) = dataset.flows
        for each in flow.query.outside.values():
            new = inputs.news(self._database, self._ledger, each)
            if new:
                return new
        state = self._database.state()
        _, gid = catalog.relation(state, dataset.name)
        upper = state.upper(state.collections[gid])
        if upper.is_closed:
            return ""
        for name in dataset.reads:
            if flows.is_updated(state, name, upper.only() - 1):
                return f"{name} changed"
        return ""

    def forgotten(self) -> tuple[str, ...]:
        """Return the datasets of this pipeline that it does not declare any more."""
        mine = (
            name
            for name, (pipeline, kind) in self._ledger.owners().items()
            if pipeline == self._spec.name and kind != INPUT
        )
        return tuple(sorted(set(mine) - set(self._datasets)))

    # ---- the doing -----------------------------------------------------------------------------

    def run(
        self,
        selection: Selection,
        tell: Tell = lambda *_: None,
        count: Count = lambda *_: None,
    ) -> tuple[Done, ...]:
        """Bring everything up to date that was asked for."""
        database = self._database
        assert database is not None
        engine = database.engine
        replacement.drop_abandoned(engine.client.core, engine.evaluator, engine.materializations)
        self._ledger.set_up()
        decisions = self.decisions(selection)
        self._let_go(decisions, tell)
        session = self._queries.session
        appending = flows.Appending(database, self._ledger, session)
        sending = sinks.Sending(database, self._ledger, session, self._spec.root)
        views = [
            each.name
            for each in decisions
            if each.kind == "materialized view" and each.action != "skip"
        ]
        done: list[Done] = []
        steps, rows = len(decisions) + len(views), 0
        for decision in decisions:
            count(len(done), steps, rows)
            done.append(self._do(decision, appending, sending, tell))
            rows += done[-1].rows or 0
        self._drop_unread()
        for awaited, name in enumerate(views, len(done)):
            count(awaited, steps, rows)
            self._await(name, tell)
        return tuple(done)

    def _let_go(self, decisions: tuple[Decision, ...], tell: Tell) -> None:
        """Drop what cannot be taken along when what it reads is replaced: it is made again."""
        assert self._database is not None
        gone = self._without_columns(decisions)
        self._require_free(decisions, gone)
        for decision in reversed(decisions):
            if decision.action in ("replace", "rebuild"):
                self._unfollow(decision.name)
            if decision.name in gone:
                tell(decision.name, "letting go")
                self._database.sql(f"DROP MATERIALIZED VIEW {quoted(decision.name)}")

    def _without_columns(self, decisions: tuple[Decision, ...]) -> set[str]:
        """Return the views that read one which is replaced by one with fewer or other columns."""
        assert self._database is not None
        state = self._database.state()
        gone: set[str] = set()
        lost: set[str] = set()
        for each in decisions:
            if each.action not in ("replace", "rebuild"):
                continue
            dataset = self._datasets[each.name]
            if each.action == "rebuild" and not lost.isdisjoint(dataset.reads):
                gone.add(each.name)
            before = catalog.schemas(state, (each.name,))[each.name]
            if each.name in gone or not _has_columns(dataset.schema, before):
                lost.add(each.name)
        return gone

    def _require_free(self, decisions: tuple[Decision, ...], gone: set[str]) -> None:
        """Refuse before anything goes, if others are made of what has to go."""
        assert self._database is not None
        state = self._database.state()
        for each in decisions:
            if each.action not in ("replace", "rebuild"):
                continue
            for user in catalog.users(state, catalog.named(state, each.name).id):
                told = user.kind == "subscription"
                if (told and user.name not in self._followers(each.name)) or (
                    not told and each.name in gone and user.name not in gone
                ):
                    raise CannotRun(
                        f"{each.name!r} has to be computed from scratch, and {user.kind} "
                        f"{user.name!r}, which is not of this pipeline, is made of it; drop that "
                        f"first"
                    )

    def _followers(self, name: str) -> set[str]:
        """Return the subscriptions of the flows that follow a relation."""
        return {
            flows.subscription(dataset, flow, name)
            for dataset in self._datasets.values()
            for flow in dataset.flows
        }

    def _unfollow(self, name: str) -> None:
        """Drop the subscriptions of flows that take a relation from its beginning again."""
        assert self._database is not None
        state = self._database.state()
        found = catalog.named(state, name)
        for user in catalog.users(state, found.id):
            if user.name in self._followers(name):
                self._database.sql(f"DROP SUBSCRIPTION {quoted_name(user.name)}")

    def _do(
        self,
        decision: Decision,
        appending: flows.Appending,
        sending: sinks.Sending,
        tell: Tell,
    ) -> Done:
        if decision.action in ("keep", "skip"):
            return Done(decision)
        dataset = self._datasets[decision.name]
        if dataset.kind == "materialized view":
            return Done(decision, self._keep(dataset, decision, tell))
        if dataset.kind == "sink":
            return Done(decision, self._send(dataset, decision, appending, sending, tell))
        assert self._database is not None
        if decision.action == "create":
            tell(dataset.name, "creating")
            self._own(dataset)
            self._database.create_table(dataset.name, dataset.schema)
            self._comment(dataset)
        tell(dataset.name, "appending")
        return Done(decision, appending.append(dataset, anew=decision.action == "refill"))

    def _send(
        self,
        dataset: Dataset,
        decision: Decision,
        appending: flows.Appending,
        sending: sinks.Sending,
        tell: Tell,
    ) -> int:
        """Deliver what a sink still has to get, then what arrived."""
        self._own(dataset)
        tell(dataset.name, "delivering")
        sent = sending.open(dataset)
        appending.append(dataset, anew=decision.action == "refill")
        return sent + sending.deliver(dataset)

    def _keep(self, dataset: Dataset, decision: Decision, tell: Tell) -> int | None:
        """Bring what a view reads outside up to date, and make the view if it is not there."""
        assert self._database is not None
        (flow,) = dataset.flows
        changed = 0
        for each in flow.query.outside.values():
            tell(dataset.name, f"reading {each.name}")
            anew = decision.action == "replace"
            changed += inputs.follow(self._database, self._ledger, each, self._spec.name, anew=anew)
        if decision.action == "rebuild" and self._is_same(dataset):
            return None  # It was taken along when what it reads was replaced.
        if decision.action != "maintain":
            tell(dataset.name, "computing")
            tables = tuple(flow.query.plan.relations)
            self._own(dataset)
            self._database.engine.coordinator.definitions.keep_plan(
                dataset.name, flow.query.plan, tables, or_replace=True
            )
            self._comment(dataset)
        return changed if flow.query.outside else None

    def _own(self, dataset: Dataset) -> None:
        """Say whose it is, before it is there: what nobody claims is somebody else's."""
        self._ledger.own(dataset.name, self._spec.name, dataset.kind)

    def _comment(self, dataset: Dataset) -> None:
        assert self._database is not None
        comment = dataset.output.comment
        if comment:
            kind = "MATERIALIZED VIEW" if dataset.kind == "materialized view" else "TABLE"
            written = comment.replace("'", "''")
            self._database.sql(f"COMMENT ON {kind} {quoted(dataset.name)} IS '{written}'")

    def _drop_unread(self) -> None:
        """Drop tables of files that no view reads any more."""
        assert self._database is not None
        state = self._database.state()
        for name, (pipeline, kind) in self._ledger.owners().items():
            found = catalog.find(state, name)
            if pipeline != self._spec.name or kind != INPUT or found is None:
                continue
            if not catalog.users(state, found.id):
                self._database.sql(f"DROP TABLE {quoted(name)}")
                self._ledger.commit(self._ledger.taken(name, ()))
                self._ledger.disown(name)

    def _await(self, name: str, tell: Tell) -> None:
        """Wait until a view has all that was written before."""
        assert self._database is not None
        engine = self._database.engine
        views = engine.evaluator.views
        time = self._database.now()
        _, gid = catalog.relation(engine.state(), name)

        def ready(state: State) -> bool | None:
            upper = state.upper(state.collections[gid])
            return True if upper.is_closed or upper.only() > time else None

        while not engine.client.core.wait(ready, LOOK_SECONDS):
            part = views.hydrating().get(name)
            tell(name, "waiting" if part is None else f"computing, {part:.0%} done")
            why = views.failures().get(gid)
            if why is not None:
                raise DatasetFailed(name, why)
        errors = engine.client.reader(engine.state().collections[gid].name).snapshot(time).errors()
        if errors.num_rows:
            raise DatasetFailed(name, errors.column("message")[0].as_py())


def _check(dataset: Dataset) -> None:
    """Refuse streams where there can be none, and tables without."""
    for flow in dataset.flows:
        if dataset.kind == "materialized view" and flow.streams:
            raise MistakeInProject(
                flow.where,
                f"materialized view {dataset.name!r} reads a stream; read its input with "
                f"spark.read (without STREAM), or make it a streaming table with @dp.table",
            )
        if dataset.kind != "materialized view":
            try:
                require_appendable(flow.query.plan, flow.streams)
            except Refused as refused:
                raise MistakeInProject(
                    flow.where, f"flow {flow.name!r} into {dataset.name!r}: {refused}"
                ) from refused
        if dataset.kind == "sink":
            sinks.check(dataset)


def _stored(state: State, name: str) -> Any:
    found = catalog.find(state, name)
    gid = None if found is None else state.names.get(found.collection)
    value = None if gid is None else state.items.get(definition.item_key(gid))
    return None if value is None else definition.decoded(value)


def _has_columns(schema: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether whoever reads these columns can read a relation of this schema in their place."""
    there = {field.name: field for field in schema}
    return all(
        field.name in there
        and there[field.name].type == field.type
        and (field.nullable or not there[field.name].nullable)
        for field in wanted
    )


def _names_and_types(schema: pa.Schema) -> list[tuple[str, Any]]:
    return [(field.name, field.type) for field in schema]
