"""Errors of the layers below that are the user's doing become errors with an SQLSTATE here.

Spark's messages begin with their condition, end with their SQLSTATE, and advise what to do in a
Spark session of one's own: to call ``try_…`` functions, to change settings. None of that helps a
client of ours: condition and SQLSTATE travel as fields, and the settings are what views mean. What
is left is the sentence that says what is wrong, and where PostgreSQL has one for it, that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headwater.adapter.errors import CannotBeMaintained, QueryRejected
from headwater.adapter.spark_lost import SparkLost
from headwater.compute.ir.refusal import NotUnderstood, Refused
from headwater.compute.select import QueryFailed
from headwater.persist.spark_end import SparkEnded

POSTGRES_SAYS: Final = {"DIVIDE_BY_ZERO": "division by zero"}
"""By condition: what clients of PostgreSQL know, and look for."""

STATES: Final = {"INVALID_WHERE_CONDITION": "42803"}
"""By condition: the SQLSTATE that PostgreSQL has for it, where Spark has another."""

RAISED: Final = (
    ("invalid input syntax", "22P02"),
    ("out of range", "22003"),
    ("returned more than one row", "21000"),
    ("negative substring length", "22011"),
    ("square root of a negative number", "2201F"),
)
"""What the dialect raises by itself, and Spark only knows as raised: what it says, its SQLSTATE."""

_USER_RAISED: Final = "USER_RAISED_EXCEPTION"

_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: [0-9A-Z]{5}\s*$")
_ADVICE: Final = re.compile(
    r"\s*(?:If necessary,? set |Use `try_|To return NULL instead, use |"
    r"Correct the value as per the syntax|Set \"?spark\.)[^\n]*"
)


@contextmanager
def users_mistakes() -> Iterator[None]:
    """Tell mistakes that the layers below found in a statement as such."""
    try:
        yield
    except (NotUnderstood, QueryFailed) as error:
        said = sentence(str(error), error.condition)
        state = sqlstate(said, error.condition, error.sqlstate)
        raise QueryRejected(said, error.condition, state) from error
    except SparkEnded as error:
        raise SparkLost(str(error), out_of_memory=error.out_of_memory) from error
    except Refused as error:
        raise CannotBeMaintained(
            f"{error.construct} cannot be kept in a view",
            detail=f"{error.reason}.",
            hint=error.hint or None,
        ) from error


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
    """
    if condition in POSTGRES_SAYS:
        return POSTGRES_SAYS[condition]
    first, _, rest = _SQLSTATE.sub("", _CONDITION.sub("", message)).partition("\n")
    said = _ADVICE.sub("", _SQLSTATE.sub("", first)).strip()
    return "\n".join(filter(None, (said, rest.strip()))) or message
