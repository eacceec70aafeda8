"""Connections to MySQL and MariaDB, of PyMySQL's, from what a connection of ours says.

Used by the source, which follows a server's log, and by the driver, which delivers into one. They
differ in what a session is like, and agree on who may hear it: ``ssl mode`` is MySQL's own, and
without one it is encrypted where the server can.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

from pymysql.connections import Connection

CONNECT_S: Final = 10

Config = Mapping[str, str]
"""``host``, ``port``, ``user``, ``password``, ``ssl mode``, …: as a connection says it."""


class _Connection(Connection):  # type: ignore[misc]
    """PyMySQL's, but where nobody is verified, no certificates are loaded to do it with."""

    def _create_ssl_ctx(self, given: Any) -> ssl.SSLContext:
        return given if isinstance(given, ssl.SSLContext) else _context(None, "preferred")


def connected(config: Config, *, session: str, silence_s: float, flags: int = 0) -> Any:
    """Connect, without a transaction; ``session`` is a statement that each session begins with."""
    return _Connection(
        host=config["host"],
        port=int(config.get("port", 3306)),
        user=config["user"],
        password=config.get("password", "").encode(),  # PyMySQL would take it for Latin-1.
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=CONNECT_S,
        read_timeout=silence_s,
        write_timeout=silence_s,
        init_command=session,
        program_name="headwater",
        client_flag=flags,
        **_secured(config),
    )


def _secured(config: Config) -> dict[str, Any]:
    """Without ``ssl``, it is tried, and done without where the server has none."""
    mode = config.get("ssl mode", "preferred").lower().replace("-", "_")
    if mode == "disabled":
        return {"ssl_disabled": True}
    authority = config.get("ssl certificate authority")
    own = config.get("ssl certificate")
    if mode == "preferred" and own is None:
        return {}
    context = _context(authority, mode)
    if own is not None:
        context.load_cert_chain(own, config.get("ssl key"))
    return {"ssl": context}


def _context(authority: str | None, mode: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = mode == "verify_identity"
    if mode not in ("verify_ca", "verify_identity"):
        context.verify_mode = ssl.CERT_NONE
    elif authority is None:
        context.load_default_certs()
    elif "-----BEGIN" in authority:
        context.load_verify_locations(cadata=authority)
    else:
        context.load_verify_locations(cafile=authority)
    return context
