"""Connections to Redis, from what a connection of ours, or the address of an endpoint, says.

    host, port, user, password, database, ssl mode, ssl certificate authority, …    a connection
    url        redis://[user[:password]@]host[:port][/database], or rediss:// for TLS    an option

Redis has no way to ask whether a server could encrypt: without an ``ssl mode`` nothing is encrypted
(``disabled``), unless certificates are named or the address is ``rediss://``, and then the server's
is verified, with its name (``verify_identity``).

No command is repeated by the client: what may have happened is found out by those who know how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from headwater.base.errors import InvalidUsage

CONNECT_S: Final = 10
SILENCE_S: Final = 30
PORT: Final = 6379
MODES: Final = ("disabled", "required", "verify_ca", "verify_identity")

Config = Mapping[str, Any]


class NoAddress(InvalidUsage):
    """A URL that is none of Redis."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the URL is no address of a Redis: {reason}; "
            "write redis://user:password@host:6379/0, or rediss:// for TLS"
        )


def said(config: Config) -> dict[str, str]:
    """Return what a configuration says, whether it is an address or not.

    >>> said({"url": "rediss://:p%40ss@cache.example/3"})
    {'host': 'cache.example', 'password': 'p@ss', 'database': '3', 'ssl mode': 'verify_identity'}
    """
    given = {name: str(value) for name, value in config.items() if name in _KNOWN and value}
    if not config.get("url"):
        return given
    url = urlsplit(config["url"])
    if url.scheme not in ("redis", "rediss") or not url.hostname:
        raise NoAddress("it does not begin with redis:// or rediss:// and a host")
    if url.query or url.fragment:
        raise NoAddress("it has no place for more than a database behind the host")
    try:
        port = url.port
    except ValueError as error:
        raise NoAddress(str(error)) from error
    found = {
        "host": url.hostname,
        "port": str(port or ""),
        "user": unquote(url.username or ""),
        "password": unquote(url.password or ""),
        "database": url.path.strip("/"),
        "ssl mode": "verify_identity" if url.scheme == "rediss" else "",
    }
    return {**{name: value for name, value in found.items() if value}, **given}


def address(config: Config) -> str:
    """Return where it is, as it may be shown.

    >>> address({"url": "redis://u:p@h:7000/2"})
    'h:7000/2'
    """
    found = said(config)
    return f"{found.get('host')}:{found.get('port', PORT)}/{found.get('database', 0)}"


def connected(config: Config) -> Redis:
    """Return a client of one connection, which dials when it is first used."""
    found = said(config)
    if "host" not in found:
        raise InvalidUsage("REDIS needs the option URL, or a connection with a HOST")
    return Redis(
        host=found["host"],
        port=_number("port", str(found.get("port", PORT))),
        db=_number("database", str(found.get("database", 0))),
        username=found.get("user"),
        password=found.get("password"),
        socket_connect_timeout=CONNECT_S,
        socket_timeout=SILENCE_S,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        client_name="headwater",
        **_secured(found),
    )


_KNOWN: Final = frozenset(
    {
        "host",
        "port",
        "user",
        "password",
        "database",
        "ssl mode",
        "ssl certificate authority",
        "ssl certificate",
        "ssl key",
    }
)


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise InvalidUsage(f"{name.upper()} of a Redis is a number, not {text!r}")
    return int(text)


def _secured(found: Mapping[str, str]) -> dict[str, Any]:
    named = "ssl certificate authority" in found or "ssl certificate" in found
    mode = found.get("ssl mode", "verify_identity" if named else "disabled")
    mode = mode.lower().replace("-", "_")
    if mode not in MODES:
        raise InvalidUsage(f"there is no SSL MODE {mode!r} for Redis; there are {', '.join(MODES)}")
    if mode == "disabled":
        return {}
    authority = found.get("ssl certificate authority")
    inline = authority is not None and "-----BEGIN" in authority
    return {
        "ssl": True,
        "ssl_cert_reqs": "none" if mode == "required" else "required",
        "ssl_check_hostname": mode == "verify_identity",
        "ssl_ca_certs": None if inline else authority,
        "ssl_ca_data": authority if inline else None,
        "ssl_certfile": found.get("ssl certificate"),
        "ssl_keyfile": found.get("ssl key"),
    }
