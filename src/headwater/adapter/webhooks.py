"""Webhooks in the catalog: what ``FROM WEBHOOK`` says, and who may hand something over.

A webhook has the name of its source: ``POST /webhook/<name>`` on the HTTP port. It is signed with a
secret, or it says ``UNSIGNED TRUE``: nobody opens a door to everybody by leaving something out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from headwater.adapter import catalog, connections
from headwater.adapter.connections import Connections
from headwater.adapter.errors import InvalidDefinition
from headwater.adapter.sql.options import number, refuse_others, text
from headwater.adapter.sql.source_statements import Webhook
from headwater.persist.core import Core
from headwater.persist.state import State
from headwater.storage.controller import Ingestions
from headwater.storage.definition import (
    PREFIX,
    FromWebhook,
    SourceDefinition,
    decoded,
)
from headwater.storage.inbox import Inbox
from headwater.storage.sources.webhook import Signature

WHAT: Final = "a source of WEBHOOK"
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "algorithm": ("sha256", "sha1", "sha512"),
    "encoding": ("hex", "base64"),
    "body": ("message", "lines", "array"),
}
BYTES_MAX: Final = 64 * 2**20


def described(state: State, webhook: Webhook) -> FromWebhook:
    """Return what ``FROM WEBHOOK (…)`` says."""
    given = webhook.options
    refuse_others(WHAT, given, ("unsigned", "header", *_CHOICES, "max bytes"))
    chosen = {name: _choice(name, given.get(name, there[0])) for name, there in _CHOICES.items()}
    signed = webhook.secret is not None
    if signed == bool(given.get("unsigned", False)):
        raise InvalidDefinition(
            f"{WHAT} is either signed or not",
            hint="HMAC SECRET name, of which senders make a signature; or UNSIGNED TRUE.",
        )
    if not signed and not {"header", "algorithm", "encoding"}.isdisjoint(given):
        raise InvalidDefinition("HEADER, ALGORITHM and ENCODING belong to HMAC SECRET name")
    size = number("max bytes", given.get("max bytes", FromWebhook().bytes_max))
    if not 0 < size <= BYTES_MAX:
        raise InvalidDefinition(f"MAX BYTES is between 1 and {BYTES_MAX}")
    header = text("header", given, WHAT) if "header" in given else FromWebhook().header
    return FromWebhook(
        "" if webhook.secret is None else connections.secret(state, webhook.secret).id,
        header,
        cast("Any", chosen["algorithm"]),
        cast("Any", chosen["encoding"]),
        cast("Any", chosen["body"]),
        size,
    )


def _choice(name: str, given: object) -> str:
    found, there = str(given).lower(), _CHOICES[name]
    if found not in there:
        raise InvalidDefinition(f"{name.upper()} is one of {', '.join(there)}, not {given!r}")
    return found


# ---- the door ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """A webhook that takes messages: its definition, the secret as it is now, where they go."""

    webhook: FromWebhook
    secret: str | None
    inbox: Inbox
    keeps_headers: bool

    def admits(self, body: bytes, given: str | None) -> bool:
        """Whether the sender of a body knows the secret, or needs none."""
        if self.secret is None:
            return True
        webhook = self.webhook
        signature = Signature(webhook.header, webhook.algorithm, webhook.spelling)
        return signature.is_by(self.secret, body, given)


class Webhooks:
    """The webhooks of a location, by name."""

    def __init__(self, core: Core, ingestions: Ingestions, reached: Connections) -> None:
        self._core = core
        self._ingestions = ingestions
        self._reached = reached

    def open(self, name: str) -> Open | None:
        """Return the webhook of this name, if there is one."""
        state = self._core.state
        found = catalog.find(state, name)
        value = None if found is None else state.items.get(PREFIX + found.id)
        if found is None or value is None:
            return None
        definition: SourceDefinition = decoded(value)
        webhook = definition.upstream
        if not isinstance(webhook, FromWebhook):
            return None
        secret = None
        if webhook.secret:
            secret = str(self._reached.disclosed({"secrets": {"hmac": webhook.secret}})["hmac"])
        inbox = self._ingestions.inbox(definition.id)
        return Open(webhook, secret, inbox, "headers" in definition.included)
