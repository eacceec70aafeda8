"""``CREATE SOURCE … FROM MYSQL CONNECTION``: which tables there are, and what can be followed.

The server is looked at once, when the source is created: what would be followed wrongly, or not at
all, is refused then, with what has to be done about it (``storage/sources/my_discover.py``).
"""

from __future__ import annotations

from headwater.adapter.connections import Connections
from headwater.adapter.errors import InvalidDefinition
from headwater.adapter.object_errors import ConnectionFailed
from headwater.adapter.sql.options import refuse_others
from headwater.adapter.sql.source_statements import Connected, CreateSource
from headwater.persist import evolution
from headwater.storage.definition import Decoding, FromMySql


def described(
    statement: CreateSource, used: str, reached: Connections
) -> tuple[FromMySql, dict[str, Decoding]]:
    """Return where the source reads, and its tables by upstream's name."""
    upstream = statement.upstream
    assert isinstance(upstream, Connected)
    refuse_others("a source of MYSQL", upstream.options, ())
    try:
        import pymysql

        from headwater.storage.sources.my_discover import discover
    except ModuleNotFoundError as error:
        raise InvalidDefinition(
            "a source of MYSQL needs the extra mysql", hint="pip install 'headwater[mysql]'."
        ) from error
    try:
        found = discover(reached(used))
    except (pymysql.Error, OSError) as error:
        why = str(error.args[-1] if error.args else error)
        raise ConnectionFailed(f'connection "{upstream.connection}"', why, "mysql") from error
    outputs = {
        table: Decoding("rows", evolution.to_bytes(schema))
        for table, schema in found.tables.items()
        if not statement.schemas or table.partition(".")[0] in statement.schemas
    }
    wanted = [table.reference for table in statement.tables or ()] or list(outputs)
    wrong = found.obstacles(wanted)
    if wrong:
        raise InvalidDefinition("upstream cannot be followed yet", hint="; ".join(wrong) + ".")
    if not outputs:
        raise InvalidDefinition(
            "there are no tables upstream that the user of the connection can see"
        )
    return FromMySql(used, found.server), outputs
