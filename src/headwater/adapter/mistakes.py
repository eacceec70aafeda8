"""Errors of the layers below that are the user's doing become errors with an SQLSTATE here.

Spark's messages begin with their condition, end with their SQLSTATE, and advise what to do in a
Spark session of one's own: to call ``try_…`` functions, to change settings. None of that helps a
client of ours: condition and SQLSTATE travel as fields, and the settings are what views mean. What
is left is the sentence that says what is wrong, and where PostgreSQL has one for it, that.

Spark says a place, too, as line and column of the text that it read. Where that is what the client
wrote (Spark's dialect), it travels as a position; of a translation it would mislead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from headwater.adapter.errors import (
    CannotBeMaintained,
    InvalidDefinition,
    QueryRejected,
)
from headwater.adapter.object_errors import CollectionFailed, DroppedMeanwhile
from headwater.adapter.spark_lost import SparkLost
from headwater.adapter.storage_errors import NO_ROOM, no_room, no_room_for_files
from headwater.compute.ir.refusal import NotUnderstood, Position, Refused
from headwater.compute.select import QueryFailed
from headwater.persist.errors import DestroyedCollection, DiskFull, SchemaMismatch
from headwater.persist.spark_end import SparkEnded

POSTGRES_SAYS: Final = dict.fromkeys(("DIVIDE_BY_ZERO", "REMAINDER_BY_ZERO"), "division by zero")
"""By condition: what clients of PostgreSQL know, and look for."""

STATES: Final = {
    "INVALID_WHERE_CONDITION": "42803",
    "INTERVAL_ARITHMETIC_OVERFLOW.WITH_SUGGESTION": "22008",
    "INTERVAL_ARITHMETIC_OVERFLOW.WITHOUT_SUGGESTION": "22008",
}
"""By condition: the SQLSTATE that PostgreSQL has for it, where Spark has another."""

RAISED: Final = (
    ("invalid input syntax for type date", "22007"),
    ("invalid input syntax for type timestamp", "22007"),
    ("invalid input syntax", "22P02"),
    ("date/time field value out of range", "22008"),
    ("date field value out of range", "22008"),
    ("date out of range", "22008"),
    ("timestamp out of range", "22008"),
    ("interval out of range", "22008"),
    ("time zone displacement out of range", "22009"),
    ("not recognized", "22023"),
    ("invalid hexadecimal d", "22023"),
    ("out of range", "22003"),
    ("does not fit into numeric", "22003"),
    ("numeric field overflow", "22003"),
    ("returned more than one row", "21000"),
    ("negative substring length", "22011"),
    ("square root of a negative number", "2201F"),
    ("requested length too large", "54000"),
    (" is not supported: ", "0A000"),
)
"""What we raise by ourselves, and Spark only knows as raised: what it says, its SQLSTATE."""

_USER_RAISED: Final = "USER_RAISED_EXCEPTION"

_CAST: Final = r'The value .* cannot be cast to "{}" due to an overflow\.'
_IN_POSTGRES: Final = tuple(
    (re.compile(said), words)
    for said, words in (
        (r"(?:Division|Remainder) by zero\.", "division by zero"),
        (r"overflow\.", "value out of range: overflow"),
        (_CAST.format("SMALLINT"), "smallint out of range"),
        (_CAST.format("INT"), "integer out of range"),
        (_CAST.format("BIGINT"), "bigint out of range"),
        (r"-?\d+S . -?\d+S caused overflow\.", "smallint out of range"),
        (r"integer overflow\.", "integer out of range"),
        (r"long overflow\.", "bigint out of range"),
        (r"Integer overflow while operating with intervals\.", "interval out of range"),
        (r".* cannot be represented as Decimal\(\d+, \d+\)\.", "numeric field overflow"),
    )
)
"""What Spark says of a row, of which we may have nothing but the sentence: in PostgreSQL's."""

_PLACE: Final = re.compile(r"\s*\(line \d+, column \d+\)$")
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: [0-9A-Z]{5}\s*$")
_ADVICE: Final = re.compile(
    r"\s*(?:If necessary,? set |Use [`']try_|To return NULL instead, use |"
    r"Correct the value as per the syntax|Set \"?spark\.)[^\n]*"
)


@contextmanager
def users_mistakes(text: Callable[[], str] = str) -> Iterator[None]:
    """Tell mistakes that the layers below found in a statement as such.

    ``text`` is asked for the query that Spark read, if the client wrote it so.
    """
    try:
        yield
    except (NotUnderstood, QueryFailed) as error:
        said = sentence(_PLACE.sub("", str(error)), error.condition)
        state = sqlstate(said, error.condition, error.sqlstate)
        at = character(text(), error.position)
        raise QueryRejected(said, error.condition, state, at) from error
    except SparkEnded as error:
        raise SparkLost(str(error), out_of_memory=error.out_of_memory) from error
    except Refused as error:
        raise CannotBeMaintained(
            f"{error.construct} cannot be kept in a view",
            detail=f"{error.reason}.",
            hint=error.hint or None,
            position=character(text(), error.position),
        ) from error
    except SchemaMismatch as error:
        raise InvalidDefinition(error.problem) from error
    except DiskFull as error:
        raise no_room(error) from error
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise no_room_for_files() from error
    except DestroyedCollection as error:
        # By another session, since names were looked up. One that never was is our mistake.
        raise DroppedMeanwhile from error


def character(text: str, place: Position | None) -> int | None:
    """Return a place in a text in characters from 1; ``None`` if it has no such place.

    >>> character("SELECT k,\\n nope FROM t", Position(2, 2))
    12
    """
    if place is None:
        return None
    before, lines = text.split("\n")[: place.line - 1], text.split("\n")[place.line - 1 :]
    if not lines or place.column > len(lines[0]):
        return None
    return sum(len(line) + 1 for line in before) + place.column


def in_error(name: str, message: str) -> CollectionFailed:
    """Return the error of a read of what has errors; one of them says ``message``."""
    return CollectionFailed(name, sentence(message, None))


def sqlstate(said: str, condition: str | None, told: str | None) -> str | None:
    """Return PostgreSQL's SQLSTATE of a mistake; Spark's where they agree.

    >>> sqlstate('invalid input syntax for type integer: "x"', "USER_RAISED_EXCEPTION", "P0001")
    '22P02'
    """
    if condition is not None and condition.startswith(_USER_RAISED):
        return next((state for words, state in RAISED if words in said), told)
    return STATES.get(condition or "", told)


def sentence(message: str, condition: str | None) -> str:
    """Return what a message of Spark says, without its frame and its advice.

    >>> sentence("[A.B] It is so. If necessary set \\"x\\" to \\"y\\". SQLSTATE: 22012", "A.B")
    'It is so.'
    >>> sentence("overflow. Use 'try_add' to tolerate overflow and return NULL instead.", None)
    'value out of range: overflow'
    >>> sentence("integer overflow. Use 'try_add' to tolerate overflow and return NULL.", None)
    'integer out of range'
    """
    if condition in POSTGRES_SAYS:
        return POSTGRES_SAYS[condition]
    first, _, rest = _SQLSTATE.sub("", _CONDITION.sub("", message)).partition("\n")
    said = _ADVICE.sub("", _SQLSTATE.sub("", first)).strip()
    said = next((words for known, words in _IN_POSTGRES if known.fullmatch(said)), said)
    return "\n".join(filter(None, (said, rest.strip()))) or message
