"""Implementations of the Consensus port, one per file, and their addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from headwater.base.errors import InvalidUsage
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.consensus.postgres import PostgresConsensus
from headwater.persist.consensus.sqlite import SqliteConsensus
from headwater.persist.location import Consensus

__all__ = ["MemoryConsensus", "PostgresConsensus", "SqliteConsensus", "open_consensus"]

LOG_PARAMETER: Final = "headwater_log"
LOG_DEFAULT: Final = "main"


def open_consensus(url: str, *, read_only: bool = False) -> Consensus:
    """Open ``sqlite:///a/path``, ``postgresql://…?headwater_log=name`` or ``memory:`` (fresh).

    ``sqlite:///relative`` does not exist: the path after ``sqlite://`` is absolute. The name of
    the log in PostgreSQL is ``main`` unless the address gives one.
    """
    if url == "memory:":
        if read_only:
            raise InvalidUsage("memory: is empty when opened; read-only, it would stay so")
        return MemoryConsensus()
    scheme, separator, _ = url.partition("://")
    if separator and scheme in {"postgresql", "postgres"}:
        dsn, log = _split_log(url)
        return PostgresConsensus(dsn, log, read_only)
    if separator and scheme == "sqlite":
        address = urlsplit(url)
        if not address.netloc and address.path:
            return SqliteConsensus(Path(unquote(address.path)), read_only)
    # The address is not repeated here: an unknown kind of address may contain a password.
    raise InvalidUsage(
        "no such consensus address: use sqlite:///a/path, "
        f"postgresql://user@host/database?{LOG_PARAMETER}=name or memory:"
    )


def _split_log(url: str) -> tuple[str, str]:
    """Take our parameter out of the address: libpq refuses those it does not know."""
    try:
        address = urlsplit(url)
        parameters = parse_qsl(address.query, keep_blank_values=True)
    except ValueError:
        raise InvalidUsage("the PostgreSQL address cannot be parsed") from None
    names = [value for name, value in parameters if name == LOG_PARAMETER]
    rest = [(name, value) for name, value in parameters if name != LOG_PARAMETER]
    dsn = urlunsplit(address._replace(query=urlencode(rest, safe="/")))
    return dsn, names[-1] if names else LOG_DEFAULT
