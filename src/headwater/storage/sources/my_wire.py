"""Connections to MySQL and MariaDB, and the packets that come on them.

:func:`connected` makes a connection of PyMySQL's from what a connection of ours says. What comes in
bulk (rows of a snapshot, events of the log) is read from its stream here, packet by packet, because
its own cursors make an object of every value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pymysql import err

from headwater.base import mysql

Config = mysql.Config

SILENCE_MAX_S: Final = 60
"""How long nothing may come where something is due; a log that is idle sends heartbeats."""

SESSION: Final = (
    "SET SESSION time_zone = '+00:00', SESSION sql_mode = '', SESSION net_write_timeout = 600, "
    "SESSION net_read_timeout = 600"
)
_PACKET_MAX: Final = 0xFFFFFF
_OK, _END, _ERROR = 0x00, 0xFE, 0xFF
_END_BYTES_MAX: Final = 9
LOST: Final = 2013


def connected(config: Config, *, silence_s: float = SILENCE_MAX_S) -> Any:
    """Connect, without a transaction, in UTC."""
    return mysql.connected(config, session=SESSION, silence_s=silence_s)


def one(connection: Any, query: str, *arguments: Any) -> tuple[Any, ...] | None:
    """Return the first row of an answer."""
    with connection.cursor() as cursor:
        cursor.execute(query, arguments or None)
        row = cursor.fetchone()
    return None if row is None else tuple(row)


def rows(connection: Any, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
    """Return all rows of an answer."""
    with connection.cursor() as cursor:
        cursor.execute(query, arguments or None)
        return [tuple(row) for row in cursor.fetchall()]


def variables(connection: Any) -> dict[str, str]:
    """Return the server's settings."""
    return dict(rows(connection, "SHOW GLOBAL VARIABLES"))


# ---- packets -------------------------------------------------------------------------------------


def packet(connection: Any) -> bytes:
    """Return the next packet; raise what the server says went wrong."""
    stream = connection._rfile
    found = _piece(stream)
    if len(found) == _PACKET_MAX:
        pieces = [found]
        while len(pieces[-1]) == _PACKET_MAX:
            pieces.append(_piece(stream))
        found = b"".join(pieces)
    if found and found[0] == _ERROR:
        err.raise_mysql_exception(found)
    return found


def _piece(stream: Any) -> bytes:
    header = stream.read(4)
    size = int.from_bytes(header[:3], "little")
    found: bytes = stream.read(size)
    if len(header) < 4 or len(found) < size:
        raise err.OperationalError(LOST, "the server closed the connection")
    return found


def is_end(data: bytes) -> bool:
    """Whether a packet says that there are no more."""
    return len(data) < _END_BYTES_MAX and data[:1] == b"\xfe"


def selected_packets(connection: Any, query: str) -> Iterator[bytes]:
    """Return the rows of a query as packets, while they come."""
    connection.query(query, unbuffered=True)
    result = connection._result
    while not is_end(data := packet(connection)):
        yield data
    result.unbuffered_active = False
    result.connection = None
    connection._result = None
