"""Capabilities: the right to read from a time on, the right to write from a time on.

    ReadCapability(id, frontier)    since of the collection does not pass frontier
    WriteCapability(id, frontier)   upper of the collection does not pass frontier

A capability is identified by its *token*, 128 bits from the system's randomness: whoever presents
the token has the right. It is durable, can be cloned, handed to somebody else as text, moved
forwards and dropped. A *lease* is for clients only: when it runs out the token is refused.

The value says what the system last confirmed; moving a capability returns a new value.

The token is a secret, and stays with those it was given to: the log knows a capability by its
*holder*, a digest of the token. So neither the log, nor ``inspect``, nor an error, nor a ``repr``
can give it away.

Kept by: ``collection/collections.py``, the only place that makes tokens. Relied on by: all layers.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, Self

from headwater.algebra.frontier import Frontier
from headwater.base.errors import InvalidUsage
from headwater.base.ids import GlobalId
from headwater.persist.batch import Times

_TOKEN_BYTES: Final = 16
_TEXT: Final = re.compile(r"([rw]):([0-9]{1,19}):([0-9]{0,19}):([0-9a-f]{32})", re.ASCII)


class NotACapability(InvalidUsage):
    """Text that no capability was ever written as."""

    def __init__(self) -> None:
        # Not even a part of the text: it may be a capability with a letter too many.
        super().__init__("this text is not a capability; give what to_text() of one returned")


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_hex(_TOKEN_BYTES)


@dataclass(frozen=True, slots=True)
class _Capability:
    id: GlobalId
    token: str
    frontier: Times

    @property
    def holder(self) -> str:
        """The name under which the log knows the capability; tells nothing about the token."""
        return blake2b(self.token.encode(), digest_size=_TOKEN_BYTES).hexdigest()

    def at(self, frontier: Times) -> Self:
        """Return this capability as confirmed at ``frontier``."""
        return replace(self, frontier=frontier)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(u{self.id}, {self.frontier}, holder {self.holder[:8]}…)"

    def to_text(self) -> str:
        """Return the capability as text, secret included: to hand it to somebody else."""
        at = "" if self.frontier.is_closed else str(self.frontier.only())
        return f"{type(self).__name__[0].lower()}:{self.id}:{at}:{self.token}"


@dataclass(frozen=True, slots=True, repr=False)
class ReadCapability(_Capability):
    """The right to read at ``frontier`` and after."""


@dataclass(frozen=True, slots=True, repr=False)
class WriteCapability(_Capability):
    """The right to write at ``frontier`` and after."""


Capability = ReadCapability | WriteCapability


def from_text(text: str) -> Capability:
    """Read back what ``to_text`` wrote. The system may have moved the capability since."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise NotACapability
    kind, number, at, token = found.groups()
    frontier: Times = Frontier.of(int(at)) if at else Frontier.closed()
    made = ReadCapability if kind == "r" else WriteCapability
    return made(GlobalId(int(number)), token, frontier)
