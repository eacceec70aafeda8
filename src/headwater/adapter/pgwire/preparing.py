"""What is known of a prepared statement before its values are, whichever way it was prepared.

:func:`undescribed` is what its text says; :func:`described` adds what the session knows of it:
the types of its parameters and its columns. :func:`executed` is what an EXECUTE makes of it.

Kept by: this module. Relied on by: ``connection.py`` (Parse), ``execution.py`` (PREPARE, EXECUTE).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headwater.adapter.errors import AdapterError
from headwater.adapter.pgwire import parameters
from headwater.adapter.pgwire.backend import Describes
from headwater.adapter.pgwire.calls import Calls
from headwater.adapter.pgwire.portals import Portal, Prepared, bound
from headwater.adapter.pgwire.prepare_statements import Evaluated, ExecutePrepared, Literal
from headwater.adapter.pgwire.refusals import WrongArguments
from headwater.adapter.pgwire.wire_statements import parse_text
from headwater.adapter.pgwire.wire_types import INTEGER_OIDS, TEXT_OID, of_oid
from headwater.adapter.sql.statements import Dialect, Insert
from headwater.adapter.sql.templates import is_steady, places
from headwater.adapter.sql.tokens import Source


def undescribed(source: Source | None, oids: Sequence[int], dialect: Dialect) -> Prepared:
    """Return a statement as its text says it; ``oids`` are those of its first parameters.

    What cannot be parsed without its parameters has an error when they are given.
    """
    total = 0 if source is None else parameters.count(source)
    # A type left open is text: the literal it becomes is of unknown type anyway.
    found = Prepared(source, tuple(oid or TEXT_OID for oid in given(oids, total)), dialect)
    if source is None:
        return found
    try:
        statement = bound(found, [None] * total, ()).statement
    except AdapterError:
        if not total:
            raise
        return found
    where = places(source) if isinstance(statement, Insert) else None
    return replace(found, statement=statement, places=where, steady=is_steady(source, statement))


def given(oids: Sequence[int], total: int) -> tuple[int, ...]:
    """Return a type for each of so many parameters, 0 for those that none was given for."""
    known = tuple(oids[:total])
    return known + (0,) * (total - len(known))


async def described(undescribed: Prepared, oids: Sequence[int], calls: Calls) -> Prepared:
    """Return the statement with what the session knows of it by its text, if it is one to know."""
    source = undescribed.source
    if source is None or calls.worker.cannot_describe:
        return undescribed
    wanted = given(oids, len(undescribed.parameter_oids))

    def ask() -> Prepared:
        session = calls.worker.session()
        found = session.describe(source.text, wanted) if isinstance(session, Describes) else None
        if found is None:
            return undescribed
        assert len(found.parameter_oids) == len(wanted), "a description has every parameter"
        return replace(
            undescribed,
            parameter_oids=found.parameter_oids,
            described=found.tells_columns,
            columns=found.columns,
        )

    return await calls.call(ask, abandon=True)


def executed(asked: ExecutePrepared, prepared: Prepared) -> Portal:
    """Return the statement that an EXECUTE means: its arguments stand where parameters did.

    A literal is a value as in a Bind message. Any other expression is put in as it is, of its
    parameter's type: it has no column, so that it means the same wherever it stands.
    """
    oids = prepared.parameter_oids
    if len(asked.arguments) != len(oids):
        raise WrongArguments(asked.name, len(oids), len(asked.arguments))
    values: list[str | None] = []
    expressions: dict[int, str] = {}
    for number, (argument, oid) in enumerate(zip(asked.arguments, oids, strict=True)):
        match argument:
            case Literal(text, is_number):
                values.append(text)
                whole = text is None or not is_number or text.lstrip("+-").isdigit()
                # A number is rounded to a parameter that is whole, as by any assignment.
                if oid in INTEGER_OIDS and not whole:
                    expressions[number] = _typed(str(text), oid)
            case Evaluated(sql):
                values.append(None)
                expressions[number] = _typed(sql, oid)
    if not expressions or prepared.source is None:
        return bound(prepared, values, ())
    sql = parameters.bind(prepared.source, values, oids, expressions)
    ((statement, written),) = parse_text(sql, prepared.dialect)
    return Portal(statement, written)


def _typed(sql: str, oid: int) -> str:
    type_ = of_oid(oid)
    if type_ is None:
        return f"({sql})"
    # A parameter has as many digits as it has: not through a column's type.
    return f"(({sql})::{'numeric' if type_.name == 'numeric' else type_.postgres})"
