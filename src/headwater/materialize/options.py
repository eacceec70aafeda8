"""What is written behind ``INTO``: the options of an endpoint, as texts, become its configuration.

    SQLITE (PATH)   POSTGRES (DSN [, SCHEMA])   DELTA (PATH)   PARQUET (URL)
    WEBHOOK (URL [, SECRET])
    CONNECTOR (COMMAND [, CODEC] [, CONFIG])   CONNECTOR (ENDPOINT [, PROTOCOL] [, CONFIG])

``COMMAND`` is split into words as a shell would, and run without one; ``CONFIG`` is JSON, which
only the connector understands; ``CODEC`` is ``proto`` or ``json``. ``ENDPOINT`` is ``host:port`` of
a connector that serves gRPC; ``PROTOCOL`` is ``flow`` or ``arena`` (that of document 001).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headwater.base.errors import InvalidUsage
from headwater.materialize.definition import ARENA, CONNECTOR, FLOW, Endpoint
from headwater.materialize.key_range import KeyRange
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


ENDPOINTS: Final[Mapping[str, Takes]] = {
    "sqlite": Takes({"path": str}, {}),
    "postgres": Takes({"dsn": str}, {"schema": str}),
    "delta": Takes({"path": str}, {}),
    "parquet": Takes({"url": str}, {}),
    "webhook": Takes({"url": str}, {"secret": str}),
    CONNECTOR: Takes(
        {},
        {
            "command": _command,
            "endpoint": str,
            "protocol": _protocol,
            "config": _json,
            "codec": _codec,
        },
    ),
}


def endpoint(kind: str, options: Mapping[str, str]) -> Endpoint:
    """Return an endpoint of a kind; names of kinds and options in any case.

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
    for name in takes.required:
        if name not in given:
            raise InvalidOption(f"{kind.upper()} needs the option {name.upper()}")
    config = {}
    for name, text in given.items():
        if name not in known:
            shown = ", ".join(known).upper()
            raise InvalidOption(f"{kind.upper()} takes no option {name.upper()}, only {shown}")
        try:
            config[name] = known[name](text)
        except ValueError as error:
            raise InvalidOption(f"the option {name.upper()} cannot be read: {error}") from error
    if kind.lower() == CONNECTOR and ("command" in config) == ("endpoint" in config):
        raise InvalidOption("CONNECTOR needs either the option COMMAND or the option ENDPOINT")
    if "protocol" in config and "endpoint" not in config:
        raise InvalidOption("CONNECTOR takes the option PROTOCOL only beside ENDPOINT")
    return Endpoint(kind.lower(), config)


SETTINGS: Final[Mapping[str, Callable[[str], Any]]] = {"shards": int}
"""What ``WITH (…)`` and ``ALTER MATERIALIZATION … SET (…)`` take, with what makes a value."""


def read_settings(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a materialization; their names in any case.

    >>> read_settings({"SHARDS": "2"})
    {'shards': 2}
    """
    found = {}
    for name, text in given.items():
        read = SETTINGS.get(name.lower())
        if read is None:
            there = ", ".join(SETTINGS).upper()
            raise InvalidOption(f"a materialization has no setting {name.upper()}, only {there}")
        try:
            found[name.lower()] = read(text)
        except ValueError as error:
            raise InvalidOption(f"the setting {name.upper()} cannot be read: {error}") from error
    if "shards" in found:
        KeyRange.tiling(found["shards"])
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
