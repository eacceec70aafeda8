"""What is written behind ``INTO``: the options of an endpoint, as texts, become its configuration.

    SQLITE (PATH)   POSTGRES (DSN [, SCHEMA])   DELTA (PATH)   PARQUET (URL)
    DUCKDB (PATH [, SCHEMA])
    MYSQL (HOST, USER [, PORT] [, PASSWORD] [, DATABASE]
           [, SSL_MODE] [, SSL_CA] [, SSL_CERTIFICATE, SSL_KEY])
    REDIS (URL [, GUARDED] [, SSL_CA] [, SSL_CERTIFICATE, SSL_KEY])
    ICEBERG (URI [, WAREHOUSE] [, CATALOG] [, NAMESPACE] [, CREDENTIAL] [, TOKEN])
    KAFKA (BROKER)   WEBHOOK (URL [, SECRET])
    CONNECTOR (COMMAND [, CODEC] [, CONFIG])
    CONNECTOR (ENDPOINT [, PROTOCOL] [, CONFIG]
               [, TLS_CA] [, TLS_NAME] [, TLS_CERTIFICATE, TLS_KEY])

``COMMAND`` is split into words as a shell would, and run without one; ``CONFIG`` is JSON, which
only the connector understands, and may be a secret; ``CODEC`` is ``proto`` or ``json``.
``ENDPOINT`` is ``host:port`` of a connector that serves gRPC; ``PROTOCOL`` is ``flow`` or ``arena``
(that of document 001). ``TLS_…`` are files, or a name (``transport/tls``).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headwater.base.errors import InvalidUsage
from headwater.materialize.definition import ARENA, CONFIG, CONNECTOR, FLOW, Endpoint
from headwater.materialize.key_range import KeyRange
from headwater.materialize.pace import TASKS, THREADS
from headwater.materialize.reduction.strategy import NAMES
from headwater.materialize.wire.framing import Codec


class InvalidOption(InvalidUsage):
    """Options that an endpoint does not take, lacks, or cannot read."""


@dataclass(frozen=True, slots=True)
class Takes:
    """The options of a kind of endpoint, with what makes a value of the text."""

    required: Mapping[str, Callable[[str], Any]]
    optional: Mapping[str, Callable[[str], Any]]


def _command(text: str) -> list[str]:
    return shlex.split(text)


def _json(text: str) -> Any:
    return msgspec.json.decode(text)


def _codec(text: str) -> str:
    return Codec(text).value


def _protocol(text: str) -> str:
    if text not in (FLOW, ARENA):
        raise ValueError(f"{text!r} is neither {FLOW!r} nor {ARENA!r}")
    return text


def _file(text: str) -> str:
    if not text:
        raise ValueError("it is empty, and should be a file")
    return text


def _yes(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither 'true' nor 'false'")
    return text.lower() == "true"


def _ssl_mode(text: str) -> str:
    mode = text.lower().replace("-", "_")
    if mode not in _SSL_MODES:
        raise ValueError(f"{text!r} is none of {', '.join(_SSL_MODES)}")
    return mode


_SSL_MODES: Final = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
_MYSQL: Final = ("port", "password", "database")
_SSL_FILES: Final = {"ssl_ca": _file, "ssl_certificate": _file, "ssl_key": _file}
_CALLED: Final[Mapping[str, str]] = {
    "ssl_mode": "ssl mode",
    "ssl_ca": "ssl certificate authority",
    "ssl_certificate": "ssl certificate",
    "ssl_key": "ssl key",
}
"""What an option is in a configuration, where connections have another name for it."""
_ICEBERG: Final = ("warehouse", "catalog", "namespace", "credential", "token")
_TLS: Final = ("tls_ca", "tls_certificate", "tls_key", "tls_name")

ENDPOINTS: Final[Mapping[str, Takes]] = {
    "sqlite": Takes({"path": str}, {}),
    "postgres": Takes({"dsn": str}, {"schema": str}),
    "duckdb": Takes({"path": str}, {"schema": str}),
    "mysql": Takes(
        {"host": str, "user": str},
        {**dict.fromkeys(_MYSQL, str), "ssl_mode": _ssl_mode, **_SSL_FILES},
    ),
    "redis": Takes({"url": str}, {"guarded": _yes, **_SSL_FILES}),
    "kafka": Takes({"broker": str}, {}),
    "delta": Takes({"path": str}, {}),
    "iceberg": Takes({"uri": str}, dict.fromkeys(_ICEBERG, str)),
    "parquet": Takes({"url": str}, {}),
    "webhook": Takes({"url": str}, {"secret": str}),
    CONNECTOR: Takes(
        {},
        {
            "command": _command,
            "endpoint": str,
            "protocol": _protocol,
            CONFIG: _json,
            "codec": _codec,
            **dict.fromkeys(_TLS, str),
        },
    ),
}


def endpoint(kind: str, options: Mapping[str, str], elsewhere: Collection[str] = ()) -> Endpoint:
    """Return an endpoint of a kind; names of kinds and options in any case.

    ``elsewhere``: options whose values somebody else keeps; only texts can be kept elsewhere.

    >>> endpoint("SQLITE", {"PATH": "/data/e.db"}).config
    {'path': '/data/e.db'}
    """
    takes = ENDPOINTS.get(kind.lower())
    if takes is None:
        raise InvalidOption(
            f"there is no endpoint {kind.upper()}; there are "
            f"{', '.join(name.upper() for name in ENDPOINTS)}"
        )
    given = {name.lower(): text for name, text in options.items()}
    known = {**takes.required, **takes.optional}
    kept = {name.lower() for name in elsewhere} - given.keys()
    for name in kept:
        # What is run, and where it is, is no secret; what a connector is told is one as a whole.
        hidden = name == CONFIG if kind.lower() == CONNECTOR else known.get(name, str) is str
        if not hidden:
            raise InvalidOption(f"the option {name.upper()} cannot be a secret")
    for name in takes.required:
        if name not in given and name not in kept:
            raise InvalidOption(f"{kind.upper()} needs the option {name.upper()}")
    config = {}
    for name, text in {**given, **dict.fromkeys(kept, "")}.items():
        if name not in known:
            shown = ", ".join(known).upper()
            raise InvalidOption(f"{kind.upper()} takes no option {name.upper()}, only {shown}")
        if name in kept and kind.lower() == CONNECTOR:
            continue
        try:
            config[_CALLED.get(name, name)] = known[name](text)
        except ValueError as error:
            raise InvalidOption(f"the option {name.upper()} cannot be read: {error}") from error
    if ("ssl certificate" in config) != ("ssl key" in config):
        raise InvalidOption(f"{kind.upper()} takes SSL_CERTIFICATE and SSL_KEY together")
    if kind.lower() == CONNECTOR and ("command" in config) == ("endpoint" in config):
        raise InvalidOption("CONNECTOR needs either the option COMMAND or the option ENDPOINT")
    if "protocol" in config and "endpoint" not in config:
        raise InvalidOption("CONNECTOR takes the option PROTOCOL only beside ENDPOINT")
    if "endpoint" not in config and any(name in config for name in _TLS):
        raise InvalidOption("CONNECTOR takes options of TLS only beside ENDPOINT")
    if any(name in config for name in _TLS) and "tls_ca" not in config:
        raise InvalidOption("CONNECTOR needs the option TLS_CA for TLS: a file, or 'system'")
    if ("tls_certificate" in config) != ("tls_key" in config):
        raise InvalidOption("CONNECTOR takes TLS_CERTIFICATE and TLS_KEY together")
    return Endpoint(kind.lower(), config)


def _hard(text: str) -> bool:
    if text.lower() not in ("hard", "soft"):
        raise ValueError(f"{text!r} is neither 'hard' nor 'soft'")
    return text.lower() == "hard"


def _duplicates(text: str) -> str:
    if text.lower() not in ("error", "first", "last"):
        raise ValueError(f"{text!r} is neither 'error' nor 'first' nor 'last'")
    return "" if text.lower() == "error" else text.lower()


def _where(text: str) -> str:
    if text.lower() not in (THREADS, TASKS):
        raise ValueError(f"{text!r} is neither {THREADS!r} nor {TASKS!r}")
    return text.lower()


def _milliseconds(text: str) -> int:
    return _measure(text, _MILLISECONDS, "a length of time like '500ms', '10s' or '5min'")


def _bytes(text: str) -> int:
    return _measure(text, _BYTES, "a size like '500kB', '64MB' or '1GB'")


def _measure(text: str, units: Mapping[str, int], what: str) -> int:
    found = _NUMBER_AND_UNIT.fullmatch(text.strip().lower())
    if found is None or found[2] not in units:
        raise ValueError(f"{text!r} is not {what}")
    return int(found[1]) * units[found[2]]


_NUMBER_AND_UNIT: Final = re.compile(r"([0-9]{1,12})\s*([a-z]+)")
_MILLISECONDS: Final = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000}
_BYTES: Final = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}

_TUNING: Final = ("min_duration", "max_duration", "spill_limit", "shards_in")

SETTINGS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "shards": ("shards", int),
    "delete": ("hard_delete", _hard),
    "min_duration": ("min_duration_ms", _milliseconds),
    "max_duration": ("max_duration_ms", _milliseconds),
    "spill_limit": ("spill_bytes", _bytes),
    "shards_in": ("shards_in", _where),
}
"""What ``WITH (…)`` and ``ALTER MATERIALIZATION … SET (…)`` take, with what makes a value."""

BINDING_SETTINGS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "append_only": ("append_only", _yes),
    "document": ("document", str),
    "duplicate_keys": ("duplicates", _duplicates),
}
"""What ``WITH (…)`` of a binding takes."""


def read_settings(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a materialization; their names in any case.

    Those of how it is delivered are together, under ``tuning``.

    >>> read_settings({"SHARDS": "2", "DELETE": "soft", "MIN_DURATION": "10s"})
    {'shards': 2, 'hard_delete': False, 'tuning': {'min_duration_ms': 10000}}
    """
    found = _read("a materialization", SETTINGS, given)
    if "shards" in found:
        KeyRange.tiling(found["shards"])
    paced = {key: found.pop(key) for name in _TUNING if (key := SETTINGS[name][0]) in found}
    return {**found, "tuning": paced} if paced else found


def read_binding_settings(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a binding; their names in any case.

    >>> read_binding_settings({"APPEND_ONLY": "true", "DOCUMENT": "doc"})
    {'append_only': True, 'document': 'doc'}
    """
    return _read("a binding", BINDING_SETTINGS, given)


def _read(
    what: str, settings: Mapping[str, tuple[str, Callable[[str], Any]]], given: Mapping[str, str]
) -> dict[str, Any]:
    found = {}
    for name, text in given.items():
        if name.lower() not in settings:
            there = ", ".join(settings).upper()
            raise InvalidOption(f"{what} has no setting {name.upper()}, only {there}")
        key, read = settings[name.lower()]
        try:
            found[key] = read(text)
        except ValueError as error:
            raise InvalidOption(f"the setting {name.upper()} cannot be read: {error}") from error
    return found


def strategy_name(word: str) -> str:
    """Return the strategy that SQL names, in any case.

    >>> strategy_name("LASTWRITEWINS")
    'lastWriteWins'
    """
    for name in NAMES:
        if name.lower() == word.lower():
            return name
    raise InvalidOption(f"there is no reduction {word}; there are {', '.join(NAMES)}")
