"""What a statement is before it runs: the types of its parameters, the columns of its rows.

Parameters are PostgreSQL's to say: the shadow analyses the text over empty relations of the same
names and types. A statement that PostgreSQL does not know (``SUBSCRIBE``, say) or refuses leaves
them open, and so does a shadow that does not start; the wire then takes text for them.

Columns are said by who will make the rows, so that what is announced is what comes: the shadow for
a question about the catalog, the table's schema for RETURNING, the evaluator for a query.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headwater.adapter.catalog_queries import CatalogQueries, CatalogUnavailable, passed
from headwater.adapter.pgwire.backend import Column, Description
from headwater.adapter.pgwire.wire_types import TEXT_OID, of_oid
from headwater.adapter.shadow.classify import is_catalog_query
from headwater.adapter.shadow.errors import PostgresRejected
from headwater.adapter.sql import row_locks
from headwater.adapter.sql.statements import Returned
from headwater.adapter.sql.tokens import Cursor, split
from headwater.adapter.sql.trees import strip_as_of
from headwater.persist.state import State

_ANALYSED: Final = ("SELECT", "WITH", "VALUES", "INSERT", "UPDATE", "DELETE", "(")


def described(
    queries: CatalogQueries, state: State, sql: str, parameter_oids: tuple[int, ...]
) -> Description | None:
    """Return what is known of a statement by its text alone; ``$n`` stands in it."""
    if is_catalog_query(sql):
        analysis = queries.analyse(sql, parameter_oids, state)
        return Description(analysis.parameters, tuple(map(passed, analysis.columns)))
    if 0 not in parameter_oids:
        return None
    (source,) = split(sql)
    if not any(Cursor(source).peek(word) for word in _ANALYSED):
        return None
    source, _ = row_locks.strip(strip_as_of(source)[0])  # The role that analyses only reads.
    try:
        analysis = queries.analyse(source.text, parameter_oids, state)
    except (PostgresRejected, CatalogUnavailable):
        return None
    if len(analysis.parameters) != len(parameter_oids):
        return None
    known = (oid if of_oid(oid) is not None else TEXT_OID for oid in analysis.parameters)
    return Description(tuple(known), None, tells_columns=False)


def returned_columns(returning: tuple[Returned, ...], schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of a RETURNING."""
    found: list[Column] = []
    for each in returning:
        if each.column == "*":
            found += map(Column.of_field, schema)
        else:
            found.append(Column.of_field(schema.field(each.column).with_name(each.name)))
    return tuple(found)
