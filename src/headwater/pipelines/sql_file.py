"""The statements of a pipeline's ``.sql`` file, as the elements they declare.

    CREATE [OR REFRESH] MATERIALIZED VIEW name [clauses] AS query
    CREATE [OR REFRESH] STREAMING TABLE name [(columns)] [clauses] [AS query]
    CREATE TEMPORARY VIEW name [clauses] AS query
    CREATE FLOW name [COMMENT …] AS INSERT INTO target BY NAME query

*Clauses* that say how Spark lays files out (``USING``, ``PARTITIONED BY``, ``CLUSTER BY``,
``TBLPROPERTIES``) have no meaning here and are passed over; ``COMMENT`` is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.adapter.errors import AdapterError
from headwater.adapter.sql.tokens import Cursor, Source, split
from headwater.compute.declared.elements import Flow, MistakeInProject, Output, OutputKind, Where

Element = Output | Flow

_FORMS = (
    "CREATE MATERIALIZED VIEW, CREATE STREAMING TABLE, CREATE TEMPORARY VIEW and CREATE FLOW … AS "
    "INSERT INTO … BY NAME"
)


def elements(text: str, file: str) -> Iterator[Element]:
    """Yield what the statements of a file declare, in order."""
    try:
        sources = split(text, "spark")
    except AdapterError as error:
        raise MistakeInProject(file, str(error)) from error
    for source in sources:
        where = Where(file, text.count("\n", 0, source.tokens[0].start) + 1)
        try:
            yield from _declared(source, where)
        except AdapterError as error:
            raise MistakeInProject(where, f"{error}; there are {_FORMS}") from error


def _declared(source: Source, where: Where) -> Iterator[Element]:
    cursor = Cursor(source)
    if cursor.peek("SET") or cursor.peek("USE"):
        raise MistakeInProject(
            where, "SET and USE have no place here; use configuration, catalog and database of the "
            "specification"
        )  # fmt: skip
    cursor.expect("CREATE")
    refresh = cursor.accept("OR", "REFRESH")
    if cursor.accept("MATERIALIZED", "VIEW"):
        yield from _output(cursor, "materialized view", where)
    elif cursor.accept("STREAMING", "TABLE"):
        yield from _output(cursor, "streaming table", where)
    elif not refresh and (cursor.accept("TEMPORARY", "VIEW") or cursor.accept("TEMP", "VIEW")):
        yield from _output(cursor, "temporary view", where)
    elif not refresh and cursor.accept("FLOW"):
        yield _flow(cursor, where)
    else:
        raise cursor.error()


def _output(cursor: Cursor, kind: OutputKind, where: Where) -> Iterator[Element]:
    cursor.accept("IF", "NOT", "EXISTS")
    name = _name(cursor)
    schema = cursor.bracketed().text if cursor.peek("(") else None
    comment = _clauses(cursor)
    yield Output(name, kind, where, comment, schema)
    if cursor.at_end and kind == "streaming table":
        return
    cursor.expect("AS")
    yield Flow(name, name, cursor.rest().text, where)


def _flow(cursor: Cursor, where: Where) -> Flow:
    name = _name(cursor)
    _clauses(cursor)
    cursor.expect("AS")
    if cursor.peek("AUTO"):
        raise MistakeInProject(
            where, "AUTO CDC is not supported yet; keep the newest row of each key in a "
            "materialized view (max_by)"
        )  # fmt: skip
    cursor.expect("INSERT", "INTO")
    target = _name(cursor)
    if not cursor.accept("BY", "NAME"):
        raise MistakeInProject(where, f"INSERT INTO {target} has no BY NAME; columns go by name")
    return Flow(name, target, cursor.rest().text, where)


def _name(cursor: Cursor) -> str:
    return ".".join(f"`{part.replace('`', '``')}`" for part in cursor.parts())


def _clauses(cursor: Cursor) -> str | None:
    """Pass what may stand before AS; return the comment."""
    comment = None
    while True:
        if cursor.accept("USING"):
            cursor.identifier()
        # The tokenizer takes two of them for one word.
        elif cursor.accept_any("PARTITIONED BY", "CLUSTER BY", "TBLPROPERTIES"):
            cursor.bracketed()
        elif cursor.accept("COMMENT"):
            comment = cursor.string()
        else:
            return comment
