"""``SHOW CREATE``: the statement that, typed now, makes an object as it is now. Pure.

An object has the text it was made with (``catalog.Object.sql``), and ``bindings``: what the names
in that text meant then. A name that means something else by now, or nothing, along the path of
whoever asks, is replaced by one that means the same object (``sql/renaming.py`` knows where names
stand). So is what was altered since:

    its own name and schema         every kind
    what it is made of              every kind but tables and secrets
    RETAIN HISTORY                  tables, materialized views, indexes, sources
    what its outputs are called     sources of several tables
    its settings                    materializations (kept in the text by ALTER itself)

Not told, because no CREATE says it: comments, whether it is paused, and what is a secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.adapter import alterations, catalog, namespaces
from headwater.adapter.errors import AdapterError
from headwater.adapter.sql import names, renaming
from headwater.adapter.sql.durations import shown
from headwater.adapter.sql.parse import parse
from headwater.adapter.sql.renaming import Edit, Parts
from headwater.adapter.sql.source_statements import CreateSource
from headwater.persist.state import State
from headwater.storage.definition import PREFIX, decoded

_RETAINING: Final = ("table", "materialized view", "index", "source")


def bindings(state: State, create_sql: str) -> dict[str, str]:
    """Return what the names in a CREATE mean, apart from its query's: the ids of objects."""
    others = renaming.parts(create_sql).others
    return {each.name: catalog.named(state, each.name).id for each in others}


def statement(state: State, each: catalog.Object) -> str:
    """Return the statement that makes an object as it is now."""
    try:
        places = renaming.parts(each.sql, each.dialect)
    except (AdapterError, ValueError):
        return each.sql  # Of a DataFrame: no text makes it.
    edits = [*_names(state, each, places), *_outputs(state, each), *_retention(each, places)]
    return renaming.edited(each.sql, edits)


def _names(state: State, each: catalog.Object, places: Parts) -> Iterator[Edit]:
    if _placed(state, places.own.name) != each.name:
        text = renaming.in_quotes(_name(state, each), each.dialect)
        yield Edit(places.own.start, places.own.end, text)
    called = dict(_called(state, each))
    for passed in places.others:
        if passed.name in called:
            yield Edit(passed.start, passed.end, names.quoted_name(called[passed.name]))
    if places.query is not None:
        yield from renaming.query_edits(places.query, called)


def _placed(state: State, written: str) -> str | None:
    """What a new object would be called here that is written so."""
    given, alone = names.parts(written)
    schema = given or namespaces.current(state)
    return None if schema is None else names.full(schema, alone)


def _called(state: State, each: catalog.Object) -> Iterator[tuple[str, str]]:
    """The names in a text that have to be others, and which."""
    for written, oid in each.bindings.items():
        found = catalog.find(state, written)
        if found is None or found.id != oid:
            yield written, _name(state, catalog.by_id(state, oid))


def _name(state: State, each: catalog.Object) -> str:
    """A name that means an object here, with its schema where it has to be there."""
    found = catalog.find(state, each.name)
    is_it = found is not None and found.id == each.id and _placed(state, each.name) == each.name
    return each.name if is_it else each.exact


def _retention(each: catalog.Object, places: Parts) -> Iterator[Edit]:
    if each.kind not in _RETAINING or each.of:
        return
    if alterations.retained(places.retain_ms) == each.retain_ms:
        return
    start, end = places.retention
    text = f"WITH (RETAIN HISTORY FOR '{shown(each.retain_ms)}')"
    yield Edit(start, end, text if start < end else f" {text}")


def _outputs(state: State, each: catalog.Object) -> Iterator[Edit]:
    """``FOR TABLES (…)`` of a source, if its outputs have other names than it gave them."""
    if each.kind != "source" or each.of or each.collection:
        return
    (made,) = parse(each.sql)
    assert isinstance(made, CreateSource)
    by_collection = {part.collection: part for part in catalog.users(state, each.id) if part.of}
    now = {
        output.reference: names.bare(by_collection[output.collection].name)
        for output in decoded(state.items[PREFIX + each.id]).outputs
    }
    given = {table.reference: names.bare(table.name) for table in made.tables or ()}
    if now == (given or {reference: reference.rpartition(".")[2] for reference in now}):
        return
    listed = ", ".join(
        f"{'.'.join(map(names.quoted, reference.split('.')))} AS {names.quoted(name)}"
        for reference, name in now.items()
    )
    start, end = renaming.clause(each.sql, "FOR", before="WITH")
    yield Edit(start, end, f"{'' if start < end else ' '}FOR TABLES ({listed})")
