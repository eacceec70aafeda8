"""The page of the reference that lists the system views, written from their definitions.

Kept by: a test, which compares the page in ``docs/`` with this (``REWRITE=1`` writes it).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.adapter.system import SYSTEM_VIEWS, SystemView

_HEAD: Final = """\
# System views

What there is and how it does, as relations that are read by `SELECT` like any other. They are in
the schema `hw_catalog` and are found without it. All views that one statement reads are of the same
moment. They have no history (`AS OF` is refused), and no view is made of them. Names that begin
with `hw_` are the system's: objects of yours cannot have them.

Times are milliseconds since the Unix epoch, as in `AS OF`; what is of type `timestamptz` is by the
clock.

```sql
SELECT name, status, detail FROM hw_status WHERE status NOT IN ('running', 'ready');
SELECT name, lag_ms, slowest_input FROM hw_lag ORDER BY lag_ms DESC LIMIT 5;
```
"""


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *(line for view in SYSTEM_VIEWS.values() for line in _section(view))])


def _section(view: SystemView) -> Iterator[str]:
    yield f"## {view.name}"
    yield ""
    yield view.about
    yield ""
    yield "| column | type | |"
    yield "|---|---|---|"
    for column in view.columns:
        yield f"| `{column.name}` | {column.type} | {column.about} |"
    yield ""
