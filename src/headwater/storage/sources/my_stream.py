"""The binary log of a server as a stream: what a replica is sent.

    Stream(config, file, first)     ask for the log from a place on
    read(last)  ->  the events before ``last``, each with its place

The stream stays open between ranges and goes on where it is (``given``); a server sends a heartbeat
where nothing happens, so a stream that is silent is dead. The server forgets a stream whose reader
does not read for long, and nothing is lost by that: the next range opens another.

Every stream has a number of its own as a replica: a server ends an older stream of the same number.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from headwater.storage.sources.my_binlog import (
    FIRST_POSITION,
    POSITION_BITS,
    Event,
    File,
    Format,
    Malformed,
    decoded,
    file_number,
    header_of,
    place,
)
from headwater.storage.sources.my_wire import Config, connected, is_end, packet

HEARTBEAT_NS: Final = 15_000_000_000
_DUMP: Final = 0x12
_POSITION_MAX: Final = 2**32
_REPLICA_MIN: Final = 2**31


@dataclass(frozen=True, slots=True)
class Placed:
    """An event, and where it begins."""

    place: int
    event: Event


class Stream:
    """One replica's connection."""

    def __init__(self, config: Config, file: str, first: int) -> None:
        """Ask for the log from ``first`` on, which is in ``file``."""
        self.given = first
        self._number = file_number(file)
        self._at = first
        self._checksums = False
        self._connection: Any = connected(config)
        try:
            self._start(file, first)
        except BaseException:
            self.close()
            raise

    def _start(self, file: str, first: int) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32', "
                f"@master_heartbeat_period = {HEARTBEAT_NS}, "
                f"@source_heartbeat_period = {HEARTBEAT_NS}, @mariadb_slave_capability = 4"
            )
        position = first & ((1 << POSITION_BITS) - 1)
        # The protocol has 32 bits for it: what is beyond is read from the file's beginning.
        position = position if position < _POSITION_MAX else FIRST_POSITION
        replica = _REPLICA_MIN + secrets.randbelow(_REPLICA_MIN)
        self._at = place(self._number, position)
        self._connection._execute_command(
            _DUMP, struct.pack("<IHI", position, 0, replica) + file.encode()
        )

    def close(self) -> None:
        """End the connection."""
        self._connection._force_close()

    def hello(self) -> None:
        """Take what is sent first: whoever may not read the log is told so."""
        packet(self._connection)

    def read(self, last: int) -> Iterator[Placed]:
        """Return the events before ``last``."""
        while self._at < last:
            yield self._next()
        self.given = last

    def _next(self) -> Placed:
        data = packet(self._connection)
        if is_end(data):
            raise Malformed("the server ended its log")
        event = data[1:]
        header = header_of(event)
        began = self._at
        found = decoded(event, checksums=self._checksums)
        if isinstance(found, Format):
            self._checksums = found.checksums
        if isinstance(found, File):
            self._number = file_number(found.name)
            self._at = max(self._at, place(self._number, found.position))
        elif header.stored:
            behind = self._behind(header.behind)
            began = behind - header.size
            self._at = max(self._at, behind)
        return Placed(began, found)

    def _behind(self, low: int) -> int:
        """Return the place that these 32 bits mean, in a file that may be larger than that."""
        mask = (1 << POSITION_BITS) - 1
        position = self._at & mask
        found = position & ~(_POSITION_MAX - 1) | low
        if found < position and position - found > _POSITION_MAX // 2:
            found += _POSITION_MAX
        return place(self._number, found)
