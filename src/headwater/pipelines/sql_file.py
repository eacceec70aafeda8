"""The statements of a pipeline's ``.sql`` file, as the elements they declare.

    CREATE [OR REFRESH] MATERIALIZED VIEW name [clauses] AS query
    CREATE [OR REFRESH] STREAMING TABLE name [(columns)] [clauses] [AS query]
    CREATE TEMPORARY VIEW name [clauses] AS query
    CREATE FLOW name [COMMENT …] AS INSERT INTO target BY NAME query
    CREATE FLOW name [COMMENT …] AS AUTO CDC INTO target FROM STREAM(source) KEYS (column, …)
        [APPLY AS DELETE WHEN condition] SEQUENCE BY expression
        [COLUMNS (column, …) | COLUMNS * EXCEPT (column, …)] [STORED AS SCD TYPE 1 | 2]
        [TRACK HISTORY ON (column, …) | TRACK HISTORY ON * EXCEPT (column, …)]
    CREATE [OR REFRESH] STREAMING TABLE name [(columns)] [clauses] FLOW AUTO CDC FROM …

*Clauses* that say how Spark lays files out (``USING``, ``PARTITIONED BY``, ``CLUSTER BY``,
``TBLPROPERTIES``) have no meaning here and are passed over; ``COMMENT`` is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.adapter.errors import AdapterError
from headwater.adapter.sql.tokens import Cursor, Source, split
from headwater.compute.declared.auto_cdc import Changes, NotAChange
from headwater.compute.declared.elements import Flow, MistakeInProject, Output, OutputKind, Where

Element = Output | Flow | Changes

_FORMS = (
    "CREATE MATERIALIZED VIEW, CREATE STREAMING TABLE, CREATE TEMPORARY VIEW and CREATE FLOW … AS "
    "INSERT INTO … BY NAME"
)


_SECTIONS = ("APPLY", "SEQUENCE", "COLUMNS", "STORED", "TRACK")


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
        except NotAChange as error:
            raise MistakeInProject(where, str(error)) from error
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
    if kind == "streaming table" and cursor.accept("FLOW", "AUTO", "CDC"):
        yield _changes(cursor, name, name, where)
        return
    cursor.expect("AS")
    yield Flow(name, name, cursor.rest().text, where)


def _flow(cursor: Cursor, where: Where) -> Flow | Changes:
    name = _name(cursor)
    _clauses(cursor)
    cursor.expect("AS")
    if cursor.accept("AUTO", "CDC", "INTO"):
        return _changes(cursor, name, _name(cursor), where)
    cursor.expect("INSERT", "INTO")
    target = _name(cursor)
    if not cursor.accept("BY", "NAME"):
        raise MistakeInProject(where, f"INSERT INTO {target} has no BY NAME; columns go by name")
    return Flow(name, target, cursor.rest().text, where)


def _changes(cursor: Cursor, name: str, target: str, where: Where) -> Changes:
    cursor.expect("FROM")
    streams = cursor.accept("STREAM")
    source = _name(Cursor(cursor.bracketed())) if streams and cursor.peek("(") else _name(cursor)
    cursor.expect("KEYS")
    keys = cursor.names()
    deletes = cursor.until(*_SECTIONS) if cursor.accept("APPLY", "AS", "DELETE", "WHEN") else None
    cursor.expect("SEQUENCE", "BY")
    sequence = cursor.until(*_SECTIONS)
    columns, excepted = _columns(cursor) if cursor.accept("COLUMNS") else (None, None)
    scd = cursor.until("TRACK") if cursor.accept("STORED", "AS", "SCD", "TYPE") else None
    on = cursor.accept("TRACK", "HISTORY", "ON")
    tracked, untracked = _columns(cursor) if on else (None, None)
    cursor.finish()
    return Changes(
        name,
        target,
        source,
        keys,
        sequence,
        where,
        deletes,
        columns,
        excepted,
        scd,
        tracked,
        untracked,
    )


def _columns(cursor: Cursor) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return the columns that are named, or those that all others are meant by."""
    if cursor.accept("*", "EXCEPT"):
        return None, cursor.names()
    return cursor.names(), None


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
