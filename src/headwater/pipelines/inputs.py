"""Files and other things outside, as tables that follow them.

A view is kept over collections. So what a query reads outside becomes a table, which a run brings
up to date: the rows that are there now, less those that the table has, are written as one change.
Views over it are then kept by what changed. Files that are as they were are not read again.
"""

from __future__ import annotations

import pyarrow as pa

from headwater.adapter import catalog
from headwater.adapter.group_commit import TableWrite
from headwater.api import Database
from headwater.api.values import rows_of
from headwater.compute.declared import outside
from headwater.compute.declared.outside import Outside
from headwater.compute.declared.queries import outside_schema
from headwater.persist.consolidate import DIFF, consolidate
from headwater.pipelines.ledger import INPUT, Ledger


def news(database: Database | None, ledger: Ledger, each: Outside) -> str:
    """Return what is new outside; empty if it is certain that nothing is."""
    if database is None or catalog.find(database.state(), each.name) is None:
        return f"{each.name} is to be read"
    files = each.files()
    if files is None:
        return f"{each.name} is read and compared"
    before = ledger.files(each.name)
    changed = frozenset(files) ^ before
    paths = {file.path for file in changed}
    return f"{_counted(len(paths), 'file')} of {each.name} changed" if paths else ""


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def follow(
    database: Database, ledger: Ledger, each: Outside, pipeline: str, *, anew: bool = False
) -> int:
    """Bring the table of something outside up to date; return how many updates that took."""
    files = each.files()
    if catalog.find(database.state(), each.name) is None:
        ledger.own(each.name, pipeline, INPUT)
        database.create_table(each.name, outside_schema(each))
    elif files is not None and not anew and frozenset(files) == ledger.files(each.name):
        return 0
    target = database.engine.coordinator.target(each.name)
    now = rows_of(outside.rows_of(each.rows()), target.schema, each.name)
    change = difference(database.whole(each.name), now, target.schema)
    rows = change.drop_columns([DIFF])
    write = TableWrite(target.id, target.name, (), rows, change.column(DIFF).to_pylist())
    ledger.commit(*([write] if change.num_rows else []), ledger.taken(each.name, files or ()))
    return int(change.num_rows)


def difference(before: pa.Table, after: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the updates that make one multiset of rows of another.

    >>> schema = pa.schema([("k", pa.int64())])
    >>> tables = [pa.table({"k": pa.array(rows, pa.int64())}) for rows in ([1, 1, 2], [1, 3])]
    >>> difference(*tables, schema).sort_by("k").to_pylist()
    [{'k': 1, '__diff': -1}, {'k': 2, '__diff': -1}, {'k': 3, '__diff': 1}]
    """
    field = pa.field(DIFF, pa.int64(), nullable=False)
    signed = [
        rows.cast(schema).append_column(field, pa.array([diff] * rows.num_rows, pa.int64()))
        for rows, diff in ((before, -1), (after, 1))
    ]
    return consolidate(pa.concat_tables(signed))
