"""Capabilities: the right to read from a time on, the right to write from a time on.

A capability names a collection and a frontier, and is identified by a *token* that nobody can
guess: whoever presents the token has the right. Capabilities are durable (they are the readers and
writers of persist), can be cloned, handed to somebody else as text, moved forwards and dropped.

    ReadCapability(id, frontier)    since of the collection does not pass frontier
    WriteCapability(id, frontier)   upper of the collection does not pass frontier

The value says what the system last confirmed; moving a capability returns a new value. A *lease*
is for clients only: when it runs out the token is no longer accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from headwater.algebra.frontier import Frontier
from headwater.base.errors import InvalidUsage
from headwater.base.ids import GlobalId
from headwater.persist.batch import Times


class NotACapability(InvalidUsage):
    """Text that no capability was ever written as."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"{text[:12]!r}… is not a capability; give the text that str() made of one"
        )


@dataclass(frozen=True, slots=True)
class _Capability:
    id: GlobalId
    token: str
    frontier: Times

    def at(self, frontier: Times) -> Self:
        """Return this capability as confirmed at ``frontier``."""
        return replace(self, frontier=frontier)

    def __repr__(self) -> str:
        # The token is a secret: it must not reach a log by way of a repr.
        return f"{type(self).__name__}(u{self.id}, {self.frontier}, token {self.token[:4]}…)"

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


def from_text(text: str) -> ReadCapability | WriteCapability:
    """Read back what :meth:`to_text` wrote."""
    try:
        kind, gid, at, token = text.split(":")
        frontier: Times = Frontier.of(int(at)) if at else Frontier.closed()
        number = GlobalId(int(gid))
    except ValueError:
        raise NotACapability(text) from None
    match kind:
        case "r":
            return ReadCapability(number, token, frontier)
        case "w":
            return WriteCapability(number, token, frontier)
        case _:
            raise NotACapability(text)
