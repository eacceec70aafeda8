"""Schemas: which there are, and in which of them a name is looked for.

``public`` is always there; every other one is an item of the log, ``schema/<name>``, that comes and
goes with DDL in one total order with the objects in it. An object's name says which schema it is in
(``sql/names.py``), so a schema has no list of its own: it has what is called so.

A name without a schema means the first object of that name along the *path*, and a new object goes
into the first schema of the path that exists, as in PostgreSQL. The path is the session's
(``search_path``) and is kept with the thread's context while a statement runs
(:func:`searching`), as what runs is (``adapter/running.py``): it need not be handed through
everything that may look a name up. Whoever looks for an object by the name it *has*, not by one
that a client wrote, asks for exactly that (``names.exact``).

Kept by: :mod:`.schema_definitions`. Relied on by: :mod:`.catalog`, :mod:`.catalog_queries`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import msgspec

from headwater.adapter.object_errors import NoSchemaToCreateIn, UnknownSchema
from headwater.adapter.sql import names
from headwater.base.decoding import from_json
from headwater.persist.commands import SetItem
from headwater.persist.state import State

PREFIX: Final = "schema/"


class Schema(msgspec.Struct, frozen=True):
    """One schema; ``public`` is one without being kept."""

    name: str
    id: str = ""
    comment: str | None = None


def schemas(state: State) -> tuple[Schema, ...]:
    """Every schema, by name."""
    kept = {
        key.removeprefix(PREFIX): from_json(value, Schema)
        for key, value in state.items.items()
        if key.startswith(PREFIX)
    }
    kept.setdefault(names.SCHEMA, Schema(names.SCHEMA))
    return tuple(kept[name] for name in sorted(kept))


def schema(state: State, name: str) -> Schema:
    """The schema of a name."""
    for each in schemas(state):
        if each.name == name:
            return each
    raise UnknownSchema(name)


def exists(state: State, name: str) -> bool:
    """Whether there is a schema of this name."""
    return name == names.SCHEMA or PREFIX + name in state.items


def put(what: Schema) -> SetItem:
    """Return the command that keeps a schema."""
    return SetItem(PREFIX + what.name, msgspec.json.encode(what))


def remove(name: str) -> SetItem:
    """Return the command that frees a schema's name."""
    return SetItem(PREFIX + name, None)


# ---- the path ------------------------------------------------------------------------------------

_PATH: Final[ContextVar[tuple[str, ...]]] = ContextVar("search_path", default=(names.SCHEMA,))


@contextmanager
def searching(path: Sequence[str]) -> Iterator[None]:
    """Look names up along ``path`` inside the block."""
    token = _PATH.set(tuple(path))
    try:
        yield
    finally:
        _PATH.reset(token)


def path() -> tuple[str, ...]:
    """The schemas in which a name is looked for, whether they exist or not."""
    return _PATH.get()


def searched(state: State) -> tuple[str, ...]:
    """The schemas of the path that exist."""
    return tuple(each for each in path() if exists(state, each))


def current(state: State) -> str | None:
    """Where a new object goes; None: nowhere."""
    return next(iter(searched(state)), None)


def placed(state: State, written: str) -> str:
    """What a new object is called that a client calls so."""
    given, alone = names.parts(written)
    if given is None:
        given = current(state)
        if given is None:
            raise NoSchemaToCreateIn
    elif not exists(state, given):
        raise UnknownSchema(given)
    return names.full(given, alone)
