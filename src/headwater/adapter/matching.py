"""The rows that an UPDATE or DELETE is about, with the new values computed for them beside.

Where its condition asks for whole keys, of the table's primary key or of an index on it, they are
looked up (``adapter/keyed_reads.py``), and sums of integers are computed without a query
(``sql/arithmetic.py``): ``UPDATE accounts SET balance = balance - 10 WHERE id = 7`` starts no Spark
job. Everything else is a query for the evaluator. Both ways give the same rows; tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from headwater.adapter.catalog import Sources
from headwater.adapter.reads import Reads
from headwater.adapter.sql import dml
from headwater.adapter.sql.arithmetic import integers
from headwater.adapter.sql.statements import Computed, Delete, Select, Update
from headwater.adapter.writes import Target
from headwater.persist.state import State

Computes = Mapping[str, Callable[[pa.Table], Any]]


def matched(
    reads: Reads,
    state: State,
    statement: Update | Delete,
    target: Target,
    sources: Sources,
    time: int,
) -> pa.Table:
    """Return the rows at ``time``, at which the table is complete."""
    computes = _computes(statement, target)
    found = None
    if computes is not None and not statement.tables:
        found = _by_keys(reads, state, statement, target, sources, time)
    if found is None or computes is None:
        assignments = statement.assignments if isinstance(statement, Update) else ()
        query = dml.matching(target.name, statement.where_sql, assignments)
        return reads.rows(query, sources, time)
    for name, compute in computes.items():
        found = found.append_column(name, compute(found))
    return found


def _computes(statement: Update | Delete, target: Target) -> Computes | None:
    """Return how the new values are computed; None if one of them has to be evaluated."""
    computes: dict[str, Callable[[pa.Table], Any]] = {}
    assignments = statement.assignments if isinstance(statement, Update) else ()
    for number, each in enumerate(assignments):
        if isinstance(each.value, Computed):
            compute = integers(each.value.sql, target.name, target.schema)
            if compute is None:
                return None
            computes[dml.NEW.format(number)] = compute
    return computes


def _by_keys(
    reads: Reads,
    state: State,
    statement: Update | Delete,
    target: Target,
    sources: Sources,
    time: int,
) -> pa.Table | None:
    """Return the rows if they can be looked up, in what is complete at ``time`` already."""
    if statement.where_sql is None:
        return None
    query = dml.matching(target.name, statement.where_sql)
    return reads.looked_up(Select(query, None, (target.name,)), sources, time, state)
