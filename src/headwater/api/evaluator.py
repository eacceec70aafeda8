"""Who evaluates queries for the Python API: Arrow alone where that is enough, else Spark.

A query that shows columns of one relation, whole, needs no plan: its rows are the snapshot's. So a
program that reads tables and views as they are never starts a Spark. Everything else is answered as
the server answers it (``compute/select.py``).

Views are kept by a controller that is started by the first who reads one or makes one: a program
that only inserts leaves them where they are, and whoever opens the location next brings them up to
date from there.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headwater.api.lazy_spark import LazySpark
from headwater.base.ids import GlobalId
from headwater.collection.types import SqlType
from headwater.persist.client import Client
from headwater.persist.commands import Command
from headwater.persist.multiplicity import repeat_rows
from headwater.persist.state import State

if TYPE_CHECKING:
    from headwater.compute.controller import ViewController
    from headwater.compute.prepared import Preparing


class LazyEvaluator:
    """An :class:`~headwater.adapter.ports.Evaluator` that needs Spark only where it does."""

    def __init__(self, client: Client, spark: LazySpark) -> None:
        self._client = client
        self._spark = spark
        self._starting = threading.Lock()
        self._views: ViewController | None = None

    @property
    def views(self) -> ViewController:
        """Who keeps views; started now if nobody does."""
        with self._starting:
            if self._views is None:
                from headwater.compute.controller import ViewController

                self._views = ViewController(self._client, self._spark.session)
                self._views.start()
            return self._views

    @property
    def preparing(self) -> Preparing:
        """Who makes views in an entry with other things."""
        return self.views.preparing

    def stop(self) -> None:
        """Stop keeping views."""
        with self._starting:
            if self._views is not None:
                self._views.stop()

    def select(
        self,
        sql: str,
        as_of: int,
        *,
        relations: Mapping[str, str] | None = None,
        local: Mapping[str, pa.Table] | None = None,
        tentative: Mapping[str, pa.Table] | None = None,
        group: str = "",
    ) -> pa.Table:
        """Return the rows of a query over collections, all at ``as_of``, and over these tables."""
        known, given, more = relations or {}, local or {}, tentative or {}
        shown = shown_columns(sql)
        if shown is not None and shown.relation in given:
            if shown.fits(given[shown.relation].schema):
                return shown.of(given[shown.relation])
        elif shown is not None and shown.relation in known:
            collection = known[shown.relation]
            snapshot = self._client.reader(collection).snapshot(as_of)
            if collection in more:
                snapshot = snapshot.with_updates(more[collection])
            if shown.fits(snapshot.schema):
                return shown.of(repeat_rows(snapshot.to_table(), shown.relation))
        from headwater.compute import select as queries

        session = self._spark.session
        return queries.select(
            self._client, session, sql, as_of, known, given, group, tentative=more
        )

    def cancel(self, group: str) -> None:
        """End the jobs of this name that run now."""
        from headwater.compute import select as queries

        queries.cancel(self._spark.session, group)

    def describe(
        self, sql: str, *, relations: Mapping[str, str] | None = None, state: State | None = None
    ) -> pa.Schema:
        """Return the columns a query would have."""
        from headwater.compute import select as queries

        known = state or self._client.core.state
        return queries.describe(known, self._spark.session, sql, relations or {})

    def create_view(
        self,
        name: str,
        query: Any,
        *,
        relations: Mapping[str, str] | None = None,
        key: tuple[str, ...] = (),
        start: int | None = None,
        types: Sequence[SqlType] = (),
        also: Sequence[Command] = (),
    ) -> object:
        """Keep a view of the query in the collection ``name``; ``also`` commits with it."""
        return self.views.create_view(
            name, query, relations=relations, key=key, start=start, types=types, also=also
        )

    def plan(self, query: Any, schemas: Mapping[str, pa.Schema]) -> Any:
        """Return the plan of a function that makes a DataFrame of relations."""
        from headwater.compute.query import compiled

        return compiled(self._spark.session, query, schemas).plan

    def failures(self) -> Mapping[GlobalId, str]:
        """Return why views do not advance, by their collections."""
        return {} if self._views is None else self._views.failures()

    def hydrating(self) -> Mapping[str, float]:
        """Return the views whose first step runs, and which part of it is done."""
        return {} if self._views is None else self._views.hydrating()

    def drop_view(self, name: str, *, also: Sequence[Command] = ()) -> bool:
        """Drop a view."""
        return self.views.drop_view(name, also=also)

    def explain_query(self, sql: str, *, relations: Mapping[str, str]) -> str:
        """Say by which operators a view of a query would be kept; nothing is made."""
        from headwater.compute.explain_query import explained_query

        return explained_query(self._client, self._spark.session, sql, relations)

    def explain(self, name: str) -> str:
        """Say how the view in the collection ``name`` is kept, and where it stands."""
        if self._views is not None:
            return self._views.explain(name)
        from headwater.compute import definition, describe

        state = self._client.core.look()
        (view,) = (each for each in definition.stored(state) if each.name == name)
        return describe.written(describe.described(state, view, None, None))


class Shown:
    """Columns of one relation, each with the name that it is shown by."""

    def __init__(self, relation: str, columns: Sequence[tuple[str, str]]) -> None:
        self.relation = relation
        self.columns = tuple(columns)

    def fits(self, schema: pa.Schema) -> bool:
        """Whether these are columns, letter for letter; what else they may be, Spark knows."""
        return all(column in schema.names for column, _ in self.columns)

    def of(self, rows: pa.Table) -> pa.Table:
        """Return these columns of the rows."""
        fields = [rows.schema.field(column).with_name(name) for column, name in self.columns]
        arrays = [rows.column(column) for column, _ in self.columns]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def shown_columns(sql: str) -> Shown | None:
    """Return what a query of Spark SQL shows, if it only shows columns of one relation.

    >>> shown_columns("SELECT `t`.`v` AS `w` FROM `orders` AS `t`").columns
    (('v', 'w'),)
    >>> shown_columns("SELECT v + 1 AS w FROM orders")
    >>> shown_columns("SELECT place.street FROM orders")
    """
    try:
        tree = sqlglot.parse_one(sql, dialect="spark")
    except SqlglotError:
        return None
    if not isinstance(tree, exp.Select):
        return None
    if any(value for part, value in tree.args.items() if part not in ("expressions", "from_")):
        return None
    source = tree.args["from_"].this if tree.args.get("from_") else None
    if not isinstance(source, exp.Table) or any(
        value for part, value in source.args.items() if part not in ("this", "alias")
    ):
        return None
    columns = []
    for expression in tree.expressions:
        column = expression.unalias()
        if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
            return None
        if column.table not in ("", source.alias_or_name):
            return None  # A field of a column, perhaps.
        columns.append((column.name, expression.alias_or_name))
    return Shown(source.name, columns)
