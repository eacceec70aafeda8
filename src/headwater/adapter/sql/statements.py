"""The statements we understand, as one closed union of frozen values.

Definition: :data:`Statement` is everything :func:`headwater.adapter.sql.parse.parse` can return.
A statement holds what the text *says*, with names folded as PostgreSQL folds them (unquoted to
lower case) and with their schema where one is written (``sql/names.py``), never what it *means*:
whether a table exists and whether types agree is for whoever executes it.

Invariants kept by the parser, relied on by every backend:

- names are non-empty; key columns are columns of their table;
- a row of :class:`Insert` holds Python values only (see :data:`Value`), so that no text of the
  client travels further as SQL except ``query_sql`` and ``where_sql``, which parse as
  PostgreSQL's dialect;
- ``query_sql`` is one query without ``AS OF`` and without a trailing semicolon.

A ``match`` over the union is proved exhaustive by mypy, so that a new statement shows where it is
not yet handled.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Final, Literal

import pyarrow as pa

from headwater.adapter.sql.connection_statements import (
    AlterSecret,
    CreateConnection,
    CreateSecret,
    ValidateConnection,
)
from headwater.adapter.sql.explain_statements import (
    Explain,
    ExplainQuery,
    ExplainReplacement,
    ExplainTimestamp,
    ExplainView,
)
from headwater.adapter.sql.forms import Form, field_of
from headwater.adapter.sql.materialization_statements import (
    CreateMaterialization,
    SetMaterialization,
    TurnMaterialization,
    ValidateMaterialization,
)
from headwater.adapter.sql.schema_statements import (
    CreateSchema,
    DropSchema,
    Kind,
    RenameSchema,
    SetSchema,
)
from headwater.adapter.sql.session_statements import SelectCatalog, SelectSession, SessionColumn
from headwater.adapter.sql.show_statements import (
    Show,
    ShowColumns,
    ShowCreate,
    ShowObjects,
    ShowSchemas,
    ShowTables,
)
from headwater.adapter.sql.source_statements import SourceStatement
from headwater.adapter.sql.transactions import (
    Begin,
    Commit,
    Release,
    Rollback,
    RollbackTo,
    Savepoint,
    SetTransaction,
)

# Handed on from there; what is defined here is public as it is.
__all__ = [
    "Begin", "Commit", "CreateSchema", "DropSchema", "ExplainQuery", "ExplainReplacement",
    "ExplainTimestamp", "ExplainView", "Kind", "Release", "RenameSchema", "Rollback",
    "RollbackTo", "Savepoint", "SelectCatalog", "SelectSession", "SessionColumn", "SetSchema",
    "SetTransaction", "Show", "ShowColumns", "ShowCreate", "ShowObjects", "ShowSchemas",
    "ShowTables",
]  # fmt: skip

Dialect = Literal["postgres", "spark"]
"""In which a query is written."""

Value = None | bool | int | Decimal | float | str | bytes | date | datetime
"""A literal. A ``str`` is of unknown type until it meets its column, as in PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Calculated:
    """An expression that reads no relation, where a value stands: ``now()``, ``2 * 3``."""

    sql: str
    """In PostgreSQL's dialect."""
    is_steady: bool
    """Whether it has one value in one statement; ``random()`` has one in every row."""


class Keyword(enum.Enum):
    """A word that stands where a value does."""

    DEFAULT = "DEFAULT"


DEFAULT: Final = Keyword.DEFAULT
"""The column's default."""

Written = Value | Keyword | Calculated
"""What may stand in a row of VALUES."""


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """One column of a ``CREATE TABLE``. A key column is never nullable."""

    name: str
    type: pa.DataType
    nullable: bool = True
    default: Value | Calculated = None
    """What a row that leaves it out gets."""
    length_max: int | None = None
    """Of ``varchar(n)``: n."""
    form: Form | None = None
    """Which type it is that Arrow knows as text, if it is one."""


@dataclass(frozen=True, slots=True)
class CreateTable:
    """``CREATE TABLE [IF NOT EXISTS] name (column type [NOT NULL], …, [PRIMARY KEY (…)])``."""

    name: str
    columns: tuple[ColumnDef, ...]
    key: tuple[str, ...] = ()
    if_not_exists: bool = False
    retain_ms: int | None = None
    """``WITH (RETAIN HISTORY FOR 'duration')``."""

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema, nullability included."""
        return pa.schema(
            [field_of(each.name, each.type, each.nullable, each.form) for each in self.columns]
        )


@dataclass(frozen=True, slots=True)
class Returned:
    """``column [AS name]`` of a RETURNING; the column ``*`` is all of them."""

    column: str
    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal that is assigned."""

    value: Value


@dataclass(frozen=True, slots=True)
class Excluded:
    """``excluded.column``: that of the row which could not be inserted."""

    column: str


@dataclass(frozen=True, slots=True)
class Computed:
    """Any other expression, in PostgreSQL's dialect."""

    sql: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """``column = value`` of an UPDATE or of ON CONFLICT DO UPDATE."""

    column: str
    value: Constant | Excluded | Computed | Keyword


@dataclass(frozen=True, slots=True)
class OnConflict:
    """``ON CONFLICT [(key)] DO NOTHING`` (no assignments) or ``DO UPDATE SET …``."""

    key: tuple[str, ...]
    assignments: tuple[Assignment, ...] = ()


@dataclass(frozen=True, slots=True)
class Insert:
    """``INSERT INTO table [(columns)] VALUES … | query [ON CONFLICT …] [RETURNING …] [AS OF …]``.

    ``columns`` None means all. Either ``rows`` or ``query`` has what is inserted. ``as_of``: the
    time at which they are.
    """

    table: str
    columns: tuple[str, ...] | None
    rows: tuple[tuple[Written, ...], ...]
    query: Select | None = None
    on_conflict: OnConflict | None = None
    returning: tuple[Returned, ...] | None = None
    as_of: int | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """``UPDATE table SET column = value, … [WHERE …] [RETURNING …] [AS OF time]``.

    ``tables``: what its expressions read, the table itself not counted.
    """

    table: str
    assignments: tuple[Assignment, ...]
    where_sql: str | None = None
    returning: tuple[Returned, ...] | None = None
    tables: tuple[str, ...] = ()
    as_of: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """``DELETE FROM table [WHERE …] [RETURNING …] [AS OF time]``.

    ``where_sql`` None means every row.
    """

    table: str
    where_sql: str | None = None
    returning: tuple[Returned, ...] | None = None
    tables: tuple[str, ...] = ()
    as_of: int | None = None


@dataclass(frozen=True, slots=True)
class CreateMaterializedView:
    """``CREATE [OR REPLACE] MATERIALIZED VIEW [IF NOT EXISTS] name AS query`` over ``tables``."""

    name: str
    query_sql: str
    tables: tuple[str, ...]
    if_not_exists: bool = False
    retain_ms: int | None = None
    dialect: Dialect = "postgres"
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class CreateView:
    """``CREATE [OR REPLACE] VIEW name [(columns)] AS query`` over ``tables``."""

    name: str
    query_sql: str
    tables: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    or_replace: bool = False
    dialect: Dialect = "postgres"


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """``CREATE INDEX [[IF NOT EXISTS] name] ON relation (column, …)``; None: a name is made."""

    name: str | None
    on: str
    columns: tuple[str, ...]
    if_not_exists: bool = False
    retain_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AsOf:
    """``AS OF [AT LEAST] time``, in milliseconds since the Unix epoch."""

    time: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """What a prepared query was bound with: its text with ``$n`` in it, and their values."""

    text: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Select:
    """A query over ``tables`` (those outside it, each once).

    ``as_of`` None leaves the choice of the time to the timeline. ``given`` says the same as
    ``query_sql``, for who has looked at the prepared text before.
    """

    query_sql: str
    as_of: AsOf | None
    tables: tuple[str, ...]
    dialect: Dialect = "postgres"
    given: Given | None = field(default=None, compare=False, repr=False)
    locks: bool = False
    """``FOR UPDATE``, or another of PostgreSQL's row locks."""


@dataclass(frozen=True, slots=True)
class CreateTableAs:
    """``CREATE TABLE [IF NOT EXISTS] name [(columns)] AS query [WITH [NO] DATA]``."""

    name: str
    query: Select
    columns: tuple[str, ...] | None = None
    if_not_exists: bool = False
    with_data: bool = True
    retain_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """``TRUNCATE [TABLE] name, …``: every row of each is deleted."""

    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Envelope:
    """``ENVELOPE {UPSERT | DEBEZIUM} (KEY (column, …))``."""

    kind: Literal["upsert", "debezium"]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """``SUBSCRIBE [TO] {name | (query)} [WITH (SNAPSHOT, PROGRESS)] [AS OF t] [UP TO t] …``.

    Of a query ``name`` is its text, to be shown.
    """

    name: str
    snapshot: bool = True
    progress: bool = False
    as_of: AsOf | None = None
    up_to: int | None = None
    envelope: Envelope | None = None
    named: bool = False
    """``SUBSCRIBE TO SUBSCRIPTION name``: from where that is, without a choice of its own."""
    query: Select | None = None


@dataclass(frozen=True, slots=True)
class CreateSubscription:
    """``CREATE SUBSCRIPTION name TO object``."""

    name: str
    on: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """``ACKNOWLEDGE subscription UP TO time``: everything before it was taken."""

    name: str
    time: int


@dataclass(frozen=True, slots=True)
class Refresh:
    """``REFRESH MATERIALIZED VIEW [CONCURRENTLY] name``: it returns when the view is current."""

    name: str


@dataclass(frozen=True, slots=True)
class Drop:
    """``DROP kind [IF EXISTS] name, … [CASCADE]``; ``others`` are those after the first."""

    kind: Kind
    name: str
    if_exists: bool = False
    cascade: bool = False
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rename:
    """``ALTER kind name RENAME TO new_name``; ``ALTER TABLE`` renames any relation."""

    kind: Kind
    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class AlterRetention:
    """``ALTER kind name SET (RETAIN HISTORY FOR 'duration')``; None: ``RESET (RETAIN HISTORY)``."""

    kind: Kind
    name: str
    retain_ms: int | None


@dataclass(frozen=True, slots=True)
class CommentOn:
    """``COMMENT ON {kind name | SCHEMA name | COLUMN name.column} IS {'text' | NULL}``."""

    name: str
    column: str | None
    text: str | None
    kind: Kind | Literal["schema"] | None = None


@dataclass(frozen=True, slots=True)
class SetVariable:
    """``SET [LOCAL] name = value``; ``value`` None restores the default.

    For the session, or, if ``local``, for the rest of the transaction.
    """

    name: str
    value: str | None
    local: bool = False


ForSession = (
    CreateTable
    | CreateTableAs
    | Truncate
    | Insert
    | Update
    | Delete
    | CreateView
    | CreateMaterializedView
    | CreateIndex
    | CreateMaterialization
    | CreateSchema
    | DropSchema
    | RenameSchema
    | SetSchema
    | CreateSubscription
    | SourceStatement
    | CreateSecret
    | AlterSecret
    | CreateConnection
    | ValidateConnection
    | Acknowledge
    | Select
    | Explain
    | Subscribe
    | SelectCatalog
    | Refresh
    | Drop
    | Rename
    | AlterRetention
    | SetMaterialization
    | TurnMaterialization
    | ValidateMaterialization
    | CommentOn
    | Show
    | ShowTables
    | ShowObjects
    | ShowSchemas
    | ShowColumns
    | ShowCreate
    | SetVariable
    | SetTransaction
    | Begin
    | Commit
    | Rollback
    | Savepoint
    | RollbackTo
    | Release
)
"""What a session executes."""

Statement = ForSession | SelectSession
"""What a text says: of the second kind whoever has the connection answers, wherever it stands."""


def returns_rows(statement: Statement) -> bool:
    """Whether a statement answers with rows, known before it runs."""
    match statement:
        case Insert() | Update() | Delete():
            return statement.returning is not None
        case Select() | SelectSession() | SelectCatalog():
            return True
        case ExplainTimestamp() | ExplainQuery() | ExplainView() | ExplainReplacement():
            return True
        case Show() | ShowTables() | ShowObjects() | ShowSchemas() | ShowColumns() | ShowCreate():
            return True
        case Subscribe() | ValidateMaterialization():
            return True
        case _:
            return False
