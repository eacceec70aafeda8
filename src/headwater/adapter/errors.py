"""What can be wrong with a statement, said as PostgreSQL says it.

An :class:`AdapterError` carries values, and its sentences are made here and nowhere else:

- ``condition``: our stable name of the mistake, in capitals; programs and tests match on it.
- ``sqlstate``: PostgreSQL's code for it, on which drivers and ORMs decide.
- ``primary``: one line, lower case, no full stop. ``detail`` and ``hint``: full sentences.
- ``position``: where in the client's text, in characters from 1, when that is known.

Invariant: an ``AdapterError`` says that the statement changed nothing. The wire turns it into an
ErrorResponse and the connection goes on; every other exception is reported as ``XX000`` and logged,
because it is our mistake and not the client's.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from headwater.base.errors import HeadwaterError


class AdapterError(HeadwaterError):
    """A statement that was refused. Raise one of the subclasses, never this class."""

    condition: str
    sqlstate: str

    def __init__(
        self,
        primary: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(primary)
        self.primary = primary
        self.detail = detail
        self.hint = hint
        self.position = position
        # What a client of the protocol is told in fields of their own, a traceback tells as notes.
        for label, text in (("DETAIL", detail), ("HINT", hint)):
            if text is not None:
                self.add_note(f"{label}: {text}")


class SqlSyntaxError(AdapterError):
    """The text is not a statement of our language."""

    condition = "SYNTAX_ERROR"
    sqlstate = "42601"

    def __init__(
        self,
        near: str | None,
        *,
        position: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        where = f'at or near "{near}"' if near else "at end of input"
        super().__init__(f"syntax error {where}", detail=detail, hint=hint, position=position)
        self.near = near


class Unsupported(AdapterError):
    """The text is SQL, and we do not do it (yet): refused rather than guessed."""

    condition = "FEATURE_NOT_SUPPORTED"
    sqlstate = "0A000"

    def __init__(
        self,
        feature: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(f"{feature} is not supported", detail=detail, hint=hint, position=position)
        self.feature = feature


class UnknownType(AdapterError):
    """A column type that does not exist."""

    condition = "UNDEFINED_TYPE"
    sqlstate = "42704"

    def __init__(self, type_name: str) -> None:
        super().__init__(f'type "{type_name}" does not exist')
        self.type_name = type_name


class UnknownRelation(AdapterError):
    """No table, view or materialization has this name."""

    condition = "UNDEFINED_RELATION"
    sqlstate = "42P01"

    def __init__(self, name: str, *, hint: str | None = None) -> None:
        super().__init__(f'relation "{name}" does not exist', hint=hint)
        self.name = name


class SystemRelation(AdapterError):
    """A relation of the system's where only one of the user's can be."""

    condition = "SYSTEM_RELATION"
    sqlstate = "42809"

    def __init__(self, name: str) -> None:
        super().__init__(
            f'"{name}" is a system view',
            detail="It is read by SELECT: it has no history, and nothing is written to it or made "
            "of it.",
        )
        self.name = name


class ReservedName(AdapterError):
    """A name that is the system's to give."""

    condition = "RESERVED_NAME"
    sqlstate = "42939"

    def __init__(self, name: str, prefix: str) -> None:
        super().__init__(
            f'unacceptable name "{name}"', detail=f'Names that begin with "{prefix}" are reserved.'
        )
        self.name = name


class DuplicateRelation(AdapterError):
    """The name is taken."""

    condition = "DUPLICATE_RELATION"
    sqlstate = "42P07"

    def __init__(self, name: str, *, hint: str | None = None) -> None:
        super().__init__(f'relation "{name}" already exists', hint=hint)
        self.name = name


class UnknownColumn(AdapterError):
    """The relation has no such column."""

    condition = "UNDEFINED_COLUMN"
    sqlstate = "42703"

    def __init__(self, column: str, relation: str, known: Iterable[str] = ()) -> None:
        near = get_close_matches(column, known, n=1)
        super().__init__(
            f'column "{column}" of relation "{relation}" does not exist',
            hint=f'Perhaps you meant "{near[0]}".' if near else None,
        )
        self.column = column
        self.relation = relation


class DuplicateColumn(AdapterError):
    """A column is named twice where it may be named once."""

    condition = "DUPLICATE_COLUMN"
    sqlstate = "42701"

    def __init__(self, column: str) -> None:
        super().__init__(f'column "{column}" specified more than once')
        self.column = column


class InvalidDefinition(AdapterError):
    """A table definition that contradicts itself."""

    condition = "INVALID_TABLE_DEFINITION"
    sqlstate = "42P16"


class WrongRowWidth(AdapterError):
    """A row of VALUES and the list of its target columns differ in length."""

    condition = "WRONG_ROW_WIDTH"
    sqlstate = "42601"

    def __init__(self, values: int, columns: int) -> None:
        more = (
            "expressions than target columns"
            if values > columns
            else ("target columns than expressions")
        )
        super().__init__(
            f"INSERT has more {more}", detail=f"{values} values for {columns} columns."
        )


class TypeMismatch(AdapterError):
    """A value of one type where another is wanted and no assignment cast leads there."""

    condition = "DATATYPE_MISMATCH"
    sqlstate = "42804"

    def __init__(self, wanted: str, found: str) -> None:
        super().__init__(
            f"a value of type {wanted} is wanted but the expression is of type {found}",
            hint="You will need to rewrite or cast the expression.",
        )


class InvalidText(AdapterError):
    """A string that is not the text form of the type it stands for."""

    condition = "INVALID_TEXT_REPRESENTATION"
    sqlstate = "22P02"

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(f'invalid input syntax for type {type_name}: "{text}"')


class InvalidDatetime(InvalidText):
    """A string that does not have the form of a date or timestamp."""

    condition = "INVALID_DATETIME_FORMAT"
    sqlstate = "22007"


class DatetimeOutOfRange(AdapterError):
    """A date or timestamp of the right form that no calendar has, or that we cannot hold."""

    condition = "DATETIME_FIELD_OVERFLOW"
    sqlstate = "22008"

    def __init__(self, text: str) -> None:
        super().__init__(f'date/time field value out of range: "{text}"')


class OutOfRange(AdapterError):
    """A number that its type cannot hold."""

    condition = "NUMERIC_VALUE_OUT_OF_RANGE"
    sqlstate = "22003"

    def __init__(self, type_name: str, value: object) -> None:
        super().__init__(f'value "{value}" is out of range for type {type_name}')


class NotNullViolation(AdapterError):
    """A NULL in a column that admits none."""

    condition = "NOT_NULL_VIOLATION"
    sqlstate = "23502"

    def __init__(self, column: str, relation: str) -> None:
        super().__init__(
            f'null value in column "{column}" of relation "{relation}" violates not-null constraint'
        )


class InvalidSetting(AdapterError):
    """A session variable that does not exist, or a value it cannot have."""

    condition = "INVALID_PARAMETER_VALUE"
    sqlstate = "22023"


class UnknownSetting(AdapterError):
    """No session variable has this name."""

    condition = "UNDEFINED_SETTING"
    sqlstate = "42704"

    def __init__(self, name: str) -> None:
        super().__init__(f'unrecognized configuration parameter "{name}"')


class TimestampNotReadable(AdapterError):
    """A read at a time whose history has been compacted away."""

    condition = "TIMESTAMP_NOT_READABLE"
    sqlstate = "22023"

    def __init__(self, collection: str, time: int, since: int, upper: int | None = None) -> None:
        until = "" if upper is None else f"{upper}"
        super().__init__(
            f'collection "{collection}" is not readable at time {time}',
            detail=f"It is readable at times in [{since}, {until}).",
            hint=f"Read at {since} or later, or raise RETAIN HISTORY.",
        )
        self.collection = collection
        self.time = time
        self.since = since


class WriteInThePast(AdapterError):
    """A write at a time that is complete."""

    condition = "TIMESTAMP_NOT_WRITEABLE"
    sqlstate = "22023"

    def __init__(self, table: str, time: int, upper: int) -> None:
        super().__init__(
            f'table "{table}" cannot be written at time {time}',
            detail=f"It is complete before time {upper}.",
            hint=f"Write at {upper} or later.",
        )


class NeverReadable(AdapterError):
    """A collection nobody may read any more."""

    condition = "COLLECTION_NOT_READABLE"
    sqlstate = "55000"

    def __init__(self, collection: str) -> None:
        super().__init__(f'collection "{collection}" is not readable at any time')


class StalenessExceeded(AdapterError):
    """Under bounded staleness, what is complete is older than the bound."""

    condition = "BOUNDED_STALENESS_EXCEEDED"
    sqlstate = "40001"

    def __init__(self, bound_ms: int, newest: int, oracle: int) -> None:
        super().__init__(
            f"the newest complete time is staler than {bound_ms} ms",
            detail=f"Complete is {newest}; the timeline is at {oracle}.",
            hint="Try again, or raise the bound.",
        )


class SerializationFailure(AdapterError):
    """What a transaction read was changed before it could write."""

    condition = "SERIALIZATION_FAILURE"
    sqlstate = "40001"

    def __init__(self, relation: str) -> None:
        super().__init__(
            "could not serialize access due to concurrent update",
            detail=f'"{relation}" was written after this transaction had read it.',
            hint="Retry the transaction.",
        )
        self.relation = relation


class QueryCanceled(AdapterError):
    """A statement that was ended before it was done, by its client or by its time limit."""

    condition = "QUERY_CANCELED"
    sqlstate = "57014"

    def __init__(self, why: str, *, detail: str | None = None) -> None:
        super().__init__(f"canceling statement due to {why}", detail=detail)


class ReadOnlyTransaction(AdapterError):
    """A write in a transaction that was begun READ ONLY."""

    condition = "READ_ONLY_TRANSACTION"
    sqlstate = "25006"

    def __init__(self, command: str) -> None:
        super().__init__(f"cannot execute {command} in a read-only transaction")


class TransactionFailed(AdapterError):
    """A statement inside a transaction that has already failed."""

    condition = "IN_FAILED_TRANSACTION"
    sqlstate = "25P02"

    def __init__(self) -> None:
        super().__init__(
            "current transaction is aborted, commands ignored until end of transaction block",
            hint="Send ROLLBACK.",
        )


class UnknownPrepared(AdapterError):
    """A prepared statement or portal that the client never made, or has closed."""

    condition = "UNDEFINED_PREPARED_STATEMENT"
    sqlstate = "26000"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f'{kind} "{name}" does not exist')


class ProtocolError(AdapterError):
    """The client's messages contradict the protocol."""

    condition = "PROTOCOL_VIOLATION"
    sqlstate = "08P01"


class UniqueViolation(AdapterError):
    """A row whose primary key is there already."""

    condition = "UNIQUE_VIOLATION"
    sqlstate = "23505"

    def __init__(self, relation: str, key: tuple[str, ...]) -> None:
        super().__init__(
            f'duplicate key value violates unique constraint "{relation}_pkey"',
            detail=f"A row with this key ({', '.join(key)}) exists already.",
        )


class AffectedTwice(AdapterError):
    """Two rows of one INSERT … ON CONFLICT DO UPDATE have the same key."""

    condition = "CARDINALITY_VIOLATION"
    sqlstate = "21000"

    def __init__(self) -> None:
        super().__init__(
            "ON CONFLICT DO UPDATE command cannot affect row a second time",
            hint="Ensure that no rows proposed for insertion have the same key.",
        )


class NoSuchConstraint(AdapterError):
    """The target of ON CONFLICT is not the primary key."""

    condition = "INVALID_COLUMN_REFERENCE"
    sqlstate = "42P10"

    def __init__(self) -> None:
        super().__init__(
            "there is no unique or exclusion constraint matching the ON CONFLICT specification",
            hint="Name the columns of the primary key.",
        )


class DependentObjects(AdapterError):
    """Something that others are made of, to be dropped without them."""

    condition = "DEPENDENT_OBJECTS_STILL_EXIST"
    sqlstate = "2BP01"

    def __init__(self, kind: str, name: str, users: str) -> None:
        super().__init__(
            f"cannot drop {kind} {name} because other objects depend on it",
            detail=f"Used by {users}.",
            hint="Use DROP ... CASCADE to drop the dependent objects too.",
        )


class DuplicateSchema(AdapterError):
    """The schema is there already."""

    condition = "DUPLICATE_SCHEMA"
    sqlstate = "42P06"

    def __init__(self, name: str) -> None:
        super().__init__(f'schema "{name}" already exists')


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


class WrongKind(AdapterError):
    """An object of another kind than the statement says."""

    condition = "WRONG_OBJECT_TYPE"
    sqlstate = "42809"

    def __init__(self, name: str, wanted: str, kind: str) -> None:
        super().__init__(f'"{name}" is not {_a(wanted)}', hint=f"It is {_a(kind)}.")


class QueryRejected(AdapterError):
    """Spark could not analyse or run the query; condition and SQLSTATE are its own."""

    condition = "QUERY_REJECTED"
    sqlstate = "42000"

    def __init__(
        self, message: str, condition: str | None, sqlstate: str | None, at: int | None = None
    ) -> None:
        super().__init__(message, position=at)
        self.condition = condition or self.condition
        self.sqlstate = sqlstate or self.sqlstate


class CannotBeMaintained(AdapterError):
    """A query that runs, and of which no view can be kept."""

    condition = "VIEW_NOT_MAINTAINABLE"
    sqlstate = "0A000"
