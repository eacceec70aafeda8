"""What the wire itself refuses or ends, said as PostgreSQL says it.

The errors of statements are in :mod:`headwater.adapter.errors`; these belong to connections,
cursors and COPY, which nobody but the wire knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from headwater.adapter.errors import AdapterError
from headwater.adapter.pgwire import messages


class InvalidPortalState(AdapterError):
    """A portal that has run to its end and has no rows to give again."""

    condition = "OBJECT_NOT_IN_PREREQUISITE_STATE"
    sqlstate = "55000"


class Cancelled(AdapterError):
    """A statement that was ended before it was done."""

    condition = "QUERY_CANCELED"
    sqlstate = "57014"

    def __init__(self, reason: str) -> None:
        asked = {"request": "user request", "timeout": "statement timeout"}
        super().__init__(f"canceling statement due to {asked.get(reason, 'connection loss')}")


class BadCopyData(AdapterError):
    """What a client copies in is not of the form it announced."""

    condition = "BAD_COPY_FILE_FORMAT"
    sqlstate = "22P04"


class InvalidEncoding(AdapterError):
    """Bytes that are no text."""

    condition = "CHARACTER_NOT_IN_REPERTOIRE"
    sqlstate = "22021"

    def __init__(self) -> None:
        super().__init__('invalid byte sequence for encoding "UTF8"')


class CopyGivenUp(AdapterError):
    """The client ended its COPY by CopyFail."""

    condition = "QUERY_CANCELED"
    sqlstate = "57014"

    def __init__(self, reason: str) -> None:
        super().__init__(f"COPY from stdin failed: {reason}")


class UnknownCursor(AdapterError):
    """A cursor or portal that the client never made, or that has ended."""

    condition = "UNDEFINED_CURSOR"
    sqlstate = "34000"

    def __init__(self, name: str, kind: str = "cursor") -> None:
        super().__init__(f'{kind} "{name}" does not exist')


class DuplicateCursor(AdapterError):
    """The name of a cursor or portal is taken."""

    condition = "DUPLICATE_CURSOR"
    sqlstate = "42P03"

    def __init__(self, name: str, kind: str = "cursor") -> None:
        super().__init__(f'{kind} "{name}" already exists')


class DuplicatePrepared(AdapterError):
    """The name of a prepared statement is taken."""

    condition = "DUPLICATE_PREPARED_STATEMENT"
    sqlstate = "42P05"

    def __init__(self, name: str) -> None:
        super().__init__(f'prepared statement "{name}" already exists')


class WrongArguments(AdapterError):
    """An EXECUTE with more or fewer values than its statement has parameters."""

    condition = "SYNTAX_ERROR"
    sqlstate = "42601"

    def __init__(self, name: str, expected: int, given: int) -> None:
        super().__init__(
            f'wrong number of parameters for prepared statement "{name}"',
            detail=f"Expected {expected} parameters but got {given}.",
        )


class ColumnInArgument(AdapterError):
    """An argument of EXECUTE that names a column: there is nothing it could be of."""

    condition = "UNDEFINED_COLUMN"
    sqlstate = "42703"

    def __init__(self, name: str) -> None:
        super().__init__(f'column "{name}" does not exist')


class ExecutedTooDeep(AdapterError):
    """A prepared EXECUTE that executes itself."""

    condition = "STATEMENT_TOO_COMPLEX"
    sqlstate = "54001"

    def __init__(self, name: str) -> None:
        super().__init__(f'prepared statement "{name}" executes prepared statements without end')


class SeveralCommands(AdapterError):
    """More than one statement where one is prepared."""

    condition = "SYNTAX_ERROR"
    sqlstate = "42601"

    def __init__(self) -> None:
        super().__init__("cannot insert multiple commands into a prepared statement")


class NoTransaction(AdapterError):
    """A statement that makes sense inside a transaction only."""

    condition = "NO_ACTIVE_SQL_TRANSACTION"
    sqlstate = "25P01"

    def __init__(self, statement: str) -> None:
        super().__init__(f"{statement} can only be used in transaction blocks")


class UnknownDatabase(AdapterError):
    """There is one database."""

    condition = "UNDEFINED_DATABASE"
    sqlstate = "3D000"

    def __init__(self, name: str, ours: str) -> None:
        super().__init__(f'database "{name}" does not exist', hint=f'There is one, "{ours}".')


class NoUser(AdapterError):
    """A client that does not say who it is."""

    condition = "NO_USER_NAME"
    sqlstate = "28000"

    def __init__(self) -> None:
        super().__init__("no PostgreSQL user name specified in startup packet")


class WrongPassword(AdapterError):
    """Authentication failed; for an unknown user too, so that names cannot be found out."""

    condition = "INVALID_PASSWORD"
    sqlstate = "28P01"

    def __init__(self, user: str) -> None:
        super().__init__(f'password authentication failed for user "{user}"')


class TooManyConnections(AdapterError):
    """The server serves as many clients as it may."""

    condition = "TOO_MANY_CONNECTIONS"
    sqlstate = "53300"

    def __init__(self) -> None:
        super().__init__("sorry, too many clients already")


class ShuttingDown(AdapterError):
    """The server stops."""

    condition = "ADMIN_SHUTDOWN"
    sqlstate = "57P01"

    def __init__(self) -> None:
        super().__init__("terminating connection due to administrator command")


class Replaced(AdapterError):
    """Another process has taken this server's place, or it stops."""

    condition = "SERVER_REPLACED"
    sqlstate = "57P01"

    def __init__(self) -> None:
        super().__init__(
            "terminating connection: this server no longer has the location",
            detail="Another server took its place, or it is being stopped.",
            hint="Connect again, to the server that has it now.",
        )


class IdleInTransaction(AdapterError):
    """A client kept a transaction open and said nothing."""

    condition = "IDLE_IN_TRANSACTION_SESSION_TIMEOUT"
    sqlstate = "25P03"

    def __init__(self) -> None:
        super().__init__("terminating connection due to idle-in-transaction timeout")


class IdleSession(AdapterError):
    """A client was silent for longer than it said it would be."""

    condition = "IDLE_SESSION_TIMEOUT"
    sqlstate = "57P05"

    def __init__(self) -> None:
        super().__init__("terminating connection due to idle-session timeout")


class ResultTypeChanged(AdapterError):
    """A statement whose rows are of other types than when it was prepared; drivers prepare anew."""

    condition = "RESULT_TYPE_CHANGED"
    sqlstate = "0A000"
    routine = "RevalidateCachedQuery"
    """Of PostgreSQL's, where it says so: by this asyncpg and pgjdbc tell it from other refusals."""

    def __init__(self) -> None:
        super().__init__("cached plan must not change result type")


def fields(error: AdapterError, severity: str = "ERROR") -> Mapping[str, str]:
    """The fields of an ErrorResponse."""
    told = {
        "S": severity,
        "V": severity,
        "C": error.sqlstate,
        "M": error.primary,
        "D": error.detail,
        "H": error.hint,
        "P": None if error.position is None else str(error.position),
        "R": error.routine if isinstance(error, ResultTypeChanged) else None,
    }
    return {code: value for code, value in told.items() if value is not None}


def response(error: AdapterError, severity: str = "ERROR") -> bytes:
    """The ErrorResponse."""
    return messages.error_response(fields(error, severity))


@contextmanager
def placed(start: int | None) -> Iterator[None]:
    """Have the positions of errors count in the client's text, in which a statement starts there.

    None: what was run is not what the client wrote (parameters are in place), so there are none.
    """
    try:
        yield
    except AdapterError as error:
        if error.position is not None:
            error.position = None if start is None else error.position + start
        raise
