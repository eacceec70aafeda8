"""A refusal in PostgreSQL's own words, where it has some.

Our dialect is an allow-list: what is not on it is refused, by us or by Spark, whether it is a
mistake or only something that we do not do. The shadow tells the two apart. When a statement of
PostgreSQL's dialect is refused for what it *says*, the shadow is asked about the same text; if it
refuses it, too, the client hears PostgreSQL's message, SQLSTATE and position, and otherwise ours.
So nothing is refused that we can do, and nothing that works pays for it.

Positions count in the text of the statement; the wire knows where that stands in the client's.
Those of a query in Spark's dialect are Spark's own (:func:`spark_reads`).
"""

from __future__ import annotations

from typing import Final

from headwater.adapter import catalog
from headwater.adapter.catalog_queries import CatalogQueries
from headwater.adapter.errors import AdapterError, CannotBeMaintained, UnknownRelation
from headwater.adapter.shadow.errors import PostgresRejected
from headwater.adapter.sql import spark_text
from headwater.adapter.sql.statements import (
    CreateMaterializedView,
    CreateTableAs,
    CreateView,
    Delete,
    Insert,
    Select,
    Statement,
    Update,
)
from headwater.adapter.sql.tokens import is_word, split
from headwater.adapter.sql.trees import strip_as_of
from headwater.persist.state import State

_SAID: Final = ("42", "0A", "22")
"""Classes of refusals of a text: syntax and names, what is not supported, values."""
_NO_FUNCTION: Final = "42883"
_OF_FUNCTIONS: Final = (_NO_FUNCTION, "0A000", "42000")

_NOW: Final = ("NOW", "CURRENT_TIMESTAMP", "TRANSACTION_TIMESTAMP", "LOCALTIMESTAMP")
_WORDS: Final = (
    ("current_timestamp", _NOW),
    ("now", _NOW),
    ("current_date", ("CURRENT_DATE",)),
    ("current_user", ("CURRENT_USER", "SESSION_USER", "CURRENT_ROLE", "USER")),
)
"""What refusals without a place begin with, and how it may be written: neither Spark, which reads a
translation, nor sqlglot, for words without brackets, says where it stands."""


def refined(
    error: AdapterError,
    statement: Statement,
    sql: str,
    queries: CatalogQueries | None,
    state: State,
) -> AdapterError:
    """Return the error that the client is to hear of ``statement``, whose text was ``sql``."""
    if (written := _in_spark(statement)) is not None:
        if isinstance(error, UnknownRelation) and error.position is None:
            error.position = spark_text.place_of(written.query_sql, error.name)
        error.position = _moved(error.position, max(sql.find(written.query_sql), 0))
        return error
    judged = _judged(statement, sql)
    if judged is None or error.sqlstate[:2] not in _SAID:
        return error
    text, offset, is_placed = judged
    if error.position is None:
        error = _at_only_word(error, text)
    if error.position is not None:
        error.position = error.position + offset if is_placed else None
    if queries is None or isinstance(error, PostgresRejected):
        return error
    try:
        queries.analyse(text, (), state)
    except PostgresRejected as said:
        if said.sqlstate == _NO_FUNCTION and error.sqlstate not in _OF_FUNCTIONS:
            return error  # A function of ours, perhaps, and not what is wrong.
        if isinstance(error, UnknownRelation) and error.sqlstate == said.sqlstate:
            error.position = _moved(said.position, offset)
            return error  # Ours has a name that is near.
        return PostgresRejected(
            said.primary,
            said.sqlstate,
            detail=said.detail,
            hint=said.hint or (error.hint if error.sqlstate == said.sqlstate else None),
            position=_moved(said.position, offset),
        )
    except AdapterError:
        pass  # Nobody to ask.
    return error


def spark_reads(statement: Statement, state: State) -> str:
    """Return the query of a statement if Spark reads it as the client wrote it; empty if not.

    It does not where views are read that are only definitions: their texts stand in front.
    """
    written = _in_spark(statement)
    if written is None:
        return ""
    read = (catalog.find(state, name) for name in written.tables)
    is_alone = all(each is None or each.kind != "view" for each in read)
    return written.query_sql if is_alone else ""


def _in_spark(statement: Statement) -> Select | CreateView | CreateMaterializedView | None:
    """What a statement has in Spark's dialect."""
    match statement:
        case Select() | CreateView() | CreateMaterializedView():
            return statement if statement.dialect == "spark" else None
        case CreateTableAs(_, Select() as query) | Insert(query=Select() as query):
            return query if query.dialect == "spark" else None
        case _:
            return None


def _judged(statement: Statement, sql: str) -> tuple[str, int, bool] | None:
    """The text that PostgreSQL can judge, where it begins, and whether our positions count in it.

    What we read of a statement that writes is a query of our own making, with places of its own.
    """
    match statement:
        case CreateTableAs(_, Select(query)):
            return query, max(sql.find(query), 0), True
        case Select(query) | CreateView(_, query) | CreateMaterializedView(_, query):
            return query, max(sql.find(query), 0), True
        case Insert() | Update() | Delete():
            (source,) = split(sql)
            return strip_as_of(source)[0].text, 0, False
        case _:
            return None


def _at_only_word(error: AdapterError, text: str) -> AdapterError:
    """Say where the word stands that a refusal is about, and as it is written there, if only once.

    Spark, which reads a translation, has other names than the client.
    """
    words = next((words for about, words in _WORDS if error.primary.startswith(about)), ())
    (source,) = split(text)
    found = [token for token in source.tokens if is_word(token, *words)]
    if len(found) != 1:
        return error
    (word,) = found
    error.position = word.start + 1
    _, _, rest = error.primary.partition("() ")
    if not isinstance(error, CannotBeMaintained) or not rest:
        return error
    brackets = "()" if source.whole[word.end + 1 :].startswith("()") else ""
    written = f"{word.text.lower()}{brackets} {rest}"
    return CannotBeMaintained(
        written, detail=error.detail, hint=error.hint, position=error.position
    )


def _moved(position: int | None, offset: int) -> int | None:
    return None if position is None else position + offset
