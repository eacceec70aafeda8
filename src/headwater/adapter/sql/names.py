"""Names of objects, as texts: what a client writes, and what an object is called.

A *written* name is ``t``, or ``s.t`` with its schema. Which object ``t`` means depends on the
session's path (``adapter/namespaces.py``); ``s.t`` means one whatever the path, and so does
``public.t``. The name that an object *has* (``catalog.Object.name``) is a text of the same form
without ``public``: ``t`` in that schema, ``s.t`` in any other. A part with a point in it stands in
quotes, so that the parts can always be told apart:

>>> written(("public", "t")), written(("s", "t")), written(("a.b",)), written(("s", "a.b"))
('public.t', 's.t', '"a.b"', 's."a.b"')
>>> parts("t"), parts('s."a.b"'), parts('"a.b"')
((None, 't'), ('s', 'a.b'), (None, 'a.b'))
>>> full("public", "t"), full("s", "t"), exact("t"), quoted_name("s.t")
('t', 's.t', 'public.t', '"s"."t"')

Relations of the system's are known by their name alone, which begins as no other does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from headwater.adapter.errors import Unsupported

DATABASE: Final = "headwater"
SCHEMA: Final = "public"
SYSTEM_SCHEMA: Final = "hw_catalog"
SYSTEM_PREFIX: Final = "hw_"
"""How the name of every relation of the system's begins, and of no other's."""

_PARTS_MAX: Final = 3
_PART: Final = re.compile(r'"((?:[^"]|"")*)"|([^.]+)')


def written(given: Sequence[str]) -> str:
    """``[[headwater.]schema.]name`` as one text; another database is refused."""
    *qualifiers, name = given
    if len(given) > _PARTS_MAX or (len(given) == _PARTS_MAX and given[0] != DATABASE):
        raise Unsupported(
            f'a name in the database "{".".join(given[:-2])}"',
            detail=f'There is one database, "{DATABASE}".',
        )
    if not qualifiers:
        return quoted(name) if "." in name else name
    schema = qualifiers[-1]
    if schema == SYSTEM_SCHEMA and name.startswith(SYSTEM_PREFIX):
        return name
    return f"{_part(schema)}.{_part(name)}"


def parts(name: str) -> tuple[str | None, str]:
    """The schema, where one is written, and the name alone."""
    if "." not in name:
        return None, name
    found = [
        plain or inside.replace('""', '"')
        for inside, plain in (each.groups("") for each in _PART.finditer(name))
    ]
    return (None, found[0]) if len(found) == 1 else (found[0], found[1])


def full(schema: str, name: str) -> str:
    """What an object of this schema is called."""
    return written((name,) if schema == SCHEMA else (schema, name))


def schema_of(name: str) -> str:
    """The schema of an object that is called so."""
    return parts(name)[0] or SCHEMA


def bare(name: str) -> str:
    """The name alone."""
    return parts(name)[1]


def exact(name: str) -> str:
    """A written name that means the object that is called so, whatever the path."""
    return written((schema_of(name), bare(name)))


def quoted(name: str) -> str:
    """One part of a name as it is written in quotes."""
    return '"' + name.replace('"', '""') + '"'


def quoted_name(name: str) -> str:
    """A written name as SQL has it, each part in quotes."""
    schema, alone = parts(name)
    return quoted(alone) if schema is None else f"{quoted(schema)}.{quoted(alone)}"


def _part(name: str) -> str:
    return quoted(name) if "." in name or name.startswith('"') else name
