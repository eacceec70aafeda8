"""Prepared statements and portals of one connection, as the protocol and SQL both name them.

A portal is a statement with its parameters, and its rows from the moment it has run; a cursor
(DECLARE) is a portal that has run already. PostgreSQL has one namespace for both, and so have we.
A portal lives as long as its transaction, a cursor WITH HOLD until it is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headwater.adapter.pgwire import parameters
from headwater.adapter.pgwire.backend import Column
from headwater.adapter.pgwire.copy_format import CopyFormat
from headwater.adapter.pgwire.refusals import ResultTypeChanged
from headwater.adapter.pgwire.rows import BINARY_FORMAT, RowStream, format_of
from headwater.adapter.pgwire.wire_statements import AnyStatement, parse_text
from headwater.adapter.sql.statements import Dialect, Given, Insert, Select
from headwater.adapter.sql.templates import Places, filled
from headwater.adapter.sql.tokens import Source


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement of the extended protocol: its text, and the types of its parameters.

    ``source`` None is the empty statement, which PostgreSQL lets one prepare too. ``statement`` is
    what it says without its parameters, None if that cannot be told, and ``places`` where these
    stand if it need not be parsed again; ``steady``: a query whose parameters are values and no
    more, so that it reads the same relations whatever they are. ``columns`` is what the session
    said they are, if it was asked and knew; ``announced`` what the client was told.
    """

    source: Source | None
    parameter_oids: tuple[int, ...]
    dialect: Dialect = "postgres"
    statement: AnyStatement | None = None
    places: Places | None = None
    steady: bool = False
    described: bool = False
    columns: tuple[Column, ...] | None = None
    announced: tuple[Column, ...] | None = None


@dataclass(slots=True)
class Answer:
    """What a statement that has run has to say: a tag, and rows if it has any.

    ``counted``: the number of rows stands behind the tag. ``rows_max``: of a FETCH. ``shared``: the
    rows belong to a cursor and outlive this answer. ``copied``: they leave as a COPY.
    """

    tag: str
    rows: RowStream | None = field(default=None, repr=False)
    counted: bool = False
    rows_max: int | None = None
    rows_sent: int = 0
    timeout_ms: int | None = None
    shared: bool = False
    binary: bool = False
    copied: CopyFormat | None = None


@dataclass(slots=True)
class Portal:
    """A statement with its parameters, and its answer from the moment it has run."""

    statement: AnyStatement | None
    sql: str
    formats: Sequence[int] = ()
    answer: Answer | None = None
    prepared: Prepared | None = None
    hold: bool = False
    binary: bool = False
    """It was declared so: FETCH gives binary where a client cannot say."""
    done: bool = False
    failed: bool = False
    """Its transaction failed after it was made: not even a ROLLBACK of it can be run."""


def check_announced(portal: Portal) -> None:
    """Refuse rows that a client would take for others: it was told of other columns.

    A table was dropped and made again, say, since the statement was prepared. In text a value of
    another type is still what it says; in binary it would be read as something else.
    """
    announced = None if portal.prepared is None else portal.prepared.announced
    rows = None if portal.answer is None else portal.answer.rows
    if announced is None or rows is None:
        return
    changed = len(announced) != len(rows.columns) or any(
        format_of(portal.formats, place) == BINARY_FORMAT and told.sent_oid != sent.sent_oid
        for place, (told, sent) in enumerate(zip(announced, rows.columns, strict=True))
    )
    if changed:
        raise ResultTypeChanged


def bound(prepared: Prepared, values: Sequence[str | None], formats: Sequence[int]) -> Portal:
    """The statement with its parameters in place."""
    if prepared.source is None:
        return Portal(None, "", formats)
    sql = parameters.bind(prepared.source, values, prepared.parameter_oids)
    if prepared.places is not None:
        assert isinstance(prepared.statement, Insert)
        given = parameters.as_values(values, prepared.parameter_oids)
        if given is not None:
            inserted = filled(prepared.statement, prepared.places, given)
            return Portal(inserted, sql, formats, prepared=prepared)
    if prepared.steady and parameters.are_plain(prepared.parameter_oids):
        assert isinstance(prepared.statement, Select)
        given = parameters.as_values(values, prepared.parameter_oids)
        known = None if given is None else Given(prepared.source.text, tuple(given))
        selected = replace(prepared.statement, query_sql=sql, given=known)
        return Portal(selected, sql, formats, prepared=prepared)
    ((statement, text),) = parse_text(sql, prepared.dialect)
    return Portal(statement, text, formats, prepared=prepared)
