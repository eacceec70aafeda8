"""``search_path``: a list of schemas as text, as PostgreSQL reads and shows it.

>>> read('"$user", Public, "My One"'), shown(("$user", "public", "My One"))
(('$user', 'public', 'My One'), '"$user", public, "My One"')
>>> read("''"), read(""), shown(("",))
(('',), (), '""')
"""

from __future__ import annotations

import re
from typing import Final

from headwater.adapter.setting_errors import InvalidSetting
from headwater.adapter.sql.names import SCHEMA, quoted

NAME: Final = "search_path"
USER: Final = "$user"
"""Stands for the schema that is called as the user is."""
DEFAULT: Final = (USER, SCHEMA)

_ELEMENT: Final = re.compile(r"""\s*(?:"((?:[^"]|"")*)"|'((?:[^']|'')*)'|([^\s,"']+))\s*(,|$)""")
_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_$]*")


def read(text: str) -> tuple[str, ...]:
    """The schemas of a list: quoted as they stand, others in lower case."""
    found: list[str] = []
    place = 0
    while text[place:].strip() or (found and text[place - 1] == ","):
        element = _ELEMENT.match(text, place)
        if element is None:
            raise InvalidSetting(
                f'invalid value for parameter "{NAME}": "{text}"', detail="List syntax is invalid."
            )
        double, single, plain, _ = element.groups()
        if double is not None:
            found.append(double.replace('""', '"'))
        else:
            found.append(plain.lower() if single is None else single.replace("''", "'"))
        place = element.end()
    return tuple(found)


def shown(path: tuple[str, ...]) -> str:
    """The list as text."""
    return ", ".join(each if _PLAIN.fullmatch(each) else quoted(each) for each in path)
