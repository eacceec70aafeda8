"""Materializations in the catalog: where a statement delivers what, and what would come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from psycopg.sql import Literal

from headwater.adapter import catalog, creating, namespaces
from headwater.adapter.change import Change, Effect
from headwater.adapter.connections import connection, secret
from headwater.adapter.errors import InvalidDefinition, WrongKind
from headwater.adapter.object_errors import ConnectionFailed
from headwater.adapter.redaction import redacted
from headwater.adapter.sql import renaming
from headwater.adapter.sql.connection_statements import SecretName
from headwater.adapter.sql.materialization_statements import (
    CreateMaterialization,
    SetMaterialization,
    TurnMaterialization,
)
from headwater.adapter.sql.parse import parse
from headwater.base.errors import ExternalError, InvalidUsage
from headwater.base.ids import GlobalId
from headwater.materialize.controller import DryRun, Materializations
from headwater.materialize.definition import CONNECTION, SECRETS, Binding, Endpoint
from headwater.materialize.options import endpoint, read_binding_settings, read_settings
from headwater.persist.commands import Atomic, Command
from headwater.persist.core import Core
from headwater.persist.state import State


def into(state: State, statement: CreateMaterialization) -> tuple[Endpoint, tuple[str, ...]]:
    """Return the endpoint, and the ids of the connection or secrets that it uses."""
    if statement.connection is None:
        clear = {name: v for name, v in statement.options.items() if isinstance(v, str)}
        hidden = {
            name.lower(): secret(state, v.name).id
            for name, v in statement.options.items()
            if isinstance(v, SecretName)
        }
        made = endpoint(statement.endpoint, clear, statement.options)
        if hidden:
            made = Endpoint(made.driver, {**made.config, SECRETS: hidden})
        return made, tuple(hidden.values())
    used = connection(state, statement.connection, statement.endpoint).id
    return Endpoint(statement.endpoint, {CONNECTION: used}), (used,)


def bindings_of(state: State, statement: CreateMaterialization) -> tuple[Binding, ...]:
    """Return which collections go where."""
    return tuple(
        Binding(
            b.view,
            catalog.relation(state, b.view)[1],
            b.target_table,
            b.key,
            delta_updates=b.delta_updates,
            reduce=b.reduce,
            **read_binding_settings(b.settings),
        )
        for b in statement.bindings
    )


def create(
    state: State,
    stored: State,
    statement: CreateMaterialization,
    sql: str,
    new_id: Callable[[], GlobalId],
    materializations: Materializations,
) -> Change:
    """Plan a materialization of what is ``stored`` already."""
    tag = "CREATE MATERIALIZATION"
    called = namespaces.placed(state, statement.name)
    if statement.if_not_exists and catalog.called(state, called) is not None:
        return Change(tag)
    catalog.refuse_duplicate(state, called)
    to, used = into(state, statement)
    bindings = bindings_of(state, statement)
    for each in statement.bindings:
        if catalog.relation(state, each.view)[1] not in stored.collections:
            raise catalog.created_here(f'a materialization of "{each.view}"')
    views = tuple(catalog.named(state, binding.view).id for binding in statement.bindings)
    oid = f"u{new_id()}"
    uses = tuple(dict.fromkeys((*views, *used)))
    bound = creating.bindings(state, sql)
    named = catalog.Object(
        called, "materialization", redacted(sql), uses=uses, id=oid, bindings=bound
    )
    settings = read_settings(statement.settings)

    def install(also: tuple[Command, ...]) -> None:
        with _endpoint_refuses(statement.endpoint):
            materializations.install(oid, to, bindings, also=also, **settings)

    made = Effect(f'creating materialization "{called}"', install)
    return Change(tag, (catalog.put(named),), (made,))


@contextmanager
def _endpoint_refuses(kind: str) -> Iterator[None]:
    """Tell what an endpoint says before anything is durable as the statement's mistake."""
    try:
        yield
    except ExternalError as error:
        raise ConnectionFailed("a connection", str(error).strip(), kind) from error
    except InvalidUsage as error:
        raise InvalidDefinition(str(error)) from error


def change(
    state: State,
    statement: SetMaterialization | TurnMaterialization,
    core: Core,
    materializations: Materializations,
) -> Change:
    """Plan a change of how a materialization is delivered."""
    found = catalog.named(state, statement.name)
    if found.kind != "materialization":
        raise WrongKind(statement.name, "materialization", found.kind)
    given = statement.settings if isinstance(statement, SetMaterialization) else {}
    settings = read_settings(given)
    if "hard_delete" in settings:
        raise InvalidDefinition(
            "DELETE cannot be changed: its tables are made for one or the other",
            hint="Drop the materialization and create it anew, into other tables.",
        )

    kept = catalog.changed(found, sql=with_settings(found.sql, given)) if given else found

    def changed(also: tuple[Command, ...]) -> None:
        if isinstance(statement, SetMaterialization):
            if "tuning" in settings:
                more = () if "shards" in settings else also
                materializations.tune(found.id, settings["tuning"], also=more)
            if "shards" in settings:
                materializations.reshape(found.id, settings["shards"], also=also)
            return
        match statement.action:
            case "pause":
                materializations.pause(found.id)
            case "resume":
                materializations.resume(found.id)
            case "backfill":
                materializations.backfill(found.id)
        if also:
            core.submit(Atomic(also)).result()

    # What has more than one entry is no part of another.
    several = isinstance(statement, TurnMaterialization) or {"tuning", "shards"} <= settings.keys()
    steps = (catalog.put(kept),) if given else ()
    effect = Effect(f'changing materialization "{found.name}"', changed, alone=several)
    return Change("ALTER MATERIALIZATION", steps, (effect,))


def with_settings(create_sql: str, given: Mapping[str, str]) -> str:
    """Return the text of a materialization with settings changed.

    >>> with_settings("CREATE MATERIALIZATION m INTO DELTA (PATH 'p') (v AS t KEY (k))", {"X": "1"})
    "CREATE MATERIALIZATION m INTO DELTA (PATH 'p') (v AS t KEY (k)) WITH (X '1')"
    """
    (made,) = parse(create_sql)
    assert isinstance(made, CreateMaterialization)
    listed = ", ".join(
        f"{name} {Literal(value).as_string(None)}"
        for name, value in {**made.settings, **given}.items()
    )
    start, end = renaming.clause(create_sql, "WITH")
    text = f"{'' if start < end else ' '}WITH ({listed})"
    return renaming.edited(create_sql, (renaming.Edit(start, end, text),))


def validated(
    state: State, statement: CreateMaterialization, materializations: Materializations
) -> pa.Table:
    """Return what a materialization would be, without making it."""
    to, _ = into(state, statement)
    hard_delete = read_settings(statement.settings).get("hard_delete", True)
    bindings = bindings_of(state, statement)
    with _endpoint_refuses(statement.endpoint):
        found = materializations.dry_run(statement.name, to, bindings, hard_delete=hard_delete)
    return _shown(found)


def _shown(found: DryRun) -> pa.Table:
    rows: list[tuple[str, str | None, str | None, str]] = []
    for binding, field, constraint in found.constraints:
        name = constraint.type.name.lower().replace("_", " ")
        rows.append(("constraint", binding, field, f"{name}: {constraint.reason}".rstrip(": ")))
    rows += [("guarantee", binding, None, promised.value) for binding, promised in found.guarantees]
    rows += [("warning", None, None, text) for text in found.warnings]
    if found.actions:
        rows.append(("action", None, None, found.actions))
    names = ("what", "binding", "field", "detail")
    columns = [pa.array([row[n] for row in rows], pa.string()) for n in range(len(names))]
    return pa.table(columns, names=list(names))
