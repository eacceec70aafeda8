"""System views in the shadow PostgreSQL, which evaluates queries that read nothing else.

In the shadow a system view is a view over a setting of the session, which holds its rows as JSON:

    hw_objects(…) = json_to_recordset(current_setting('hw.hw_objects'))

Whoever asks sets the rows of the views that the query reads, in its own session, and asks; the
session is wiped afterwards. So any expression of PostgreSQL's works, no Spark job runs, and nobody
sees the rows of somebody else's moment. Where nothing is set, as when a text is only analysed, the
view is empty.
"""

from __future__ import annotations

from typing import Final

import msgspec
import pyarrow as pa

from headwater.adapter.system.system_view import SystemView

SETTING_PREFIX: Final = "hw."


def definition(view: SystemView) -> str:
    """Return the query that a view is in the shadow."""
    columns = ", ".join(f'"{column.name}" {column.type}' for column in view.columns)
    setting = f"nullif(current_setting('{SETTING_PREFIX}{view.name}', true), '')"
    return f"SELECT * FROM json_to_recordset(coalesce({setting}, '[]')::json) AS r({columns})"  # noqa: S608 - names of our own


def setting(name: str, rows: pa.Table) -> tuple[str, str]:
    """Return the setting that makes these the rows of a view."""
    return f"{SETTING_PREFIX}{name}", msgspec.json.encode(rows.to_pylist()).decode()
