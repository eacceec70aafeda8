"""Who may connect: a port, and two small implementations of it.

:class:`Users` gives a user's :class:`~.scram.Verifier`; passwords are nowhere. A file of users has
a line ``"name" "verifier"`` for each, PgBouncer's format, so that the same file serves both; it is
read when the server starts. Names are unique; a ``"`` in a name is doubled.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from headwater.adapter.pgwire.scram import SALT_BYTES, InvalidVerifier, Verifier
from headwater.base.errors import InvalidUsage

_LINE = re.compile(r'"((?:[^"]|"")+)"\s+"((?:[^"]|"")*)"\s*')


class InvalidUsersFile(InvalidUsage):
    """A line of a users file that cannot be read."""

    def __init__(self, path: Path, line: int, why: str) -> None:
        super().__init__(
            f'{path}, line {line}: {why}; a line is "name" "SCRAM-SHA-256$…", '
            "as `headwater user` writes it"
        )


class Users(Protocol):
    """Who may connect. Called in the event loop: it must not block."""

    def verifier(self, name: str) -> Verifier | None:
        """What is kept of the user's password; None if there is no such user."""
        ...

    def __len__(self) -> int:
        """How many there are; none means that nobody may connect."""
        ...


class UserList:
    """Users in memory."""

    def __init__(self, verifiers: Mapping[str, Verifier]) -> None:
        self._verifiers = MappingProxyType(dict(verifiers))

    @classmethod
    def of_file(cls, path: Path) -> UserList:
        """The users of a file."""
        return cls(read_users(path))

    def verifier(self, name: str) -> Verifier | None:
        """What is kept of the user's password."""
        return self._verifiers.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Who they are."""
        return tuple(self._verifiers)

    def admits(self, name: str, password: str) -> bool:
        """Whether this is the user's password: where it is told, and not proved."""
        kept = self._verifiers.get(name)
        if kept is None:
            return False
        given = Verifier.of_password(password, kept.salt, kept.iterations)
        return hmac.compare_digest(str(given), str(kept))

    def __len__(self) -> int:
        return len(self._verifiers)


def new_verifier(password: str) -> Verifier:
    """The verifier of a new password, with a salt of its own."""
    return Verifier.of_password(password, secrets.token_bytes(SALT_BYTES))


def read_users(path: Path) -> dict[str, Verifier]:
    """The users of a file, by name."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidUsage(f"the file of users cannot be read: {error}") from error
    users: dict[str, Verifier] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith((";", "#")):
            continue
        matched = _LINE.fullmatch(line)
        if matched is None:
            raise InvalidUsersFile(path, number, "it cannot be read")
        name = matched[1].replace('""', '"')
        if name in users:
            raise InvalidUsersFile(path, number, f'user "{name}" is there twice')
        try:
            users[name] = Verifier.of_text(matched[2])
        except InvalidVerifier as error:
            raise InvalidUsersFile(path, number, str(error)) from error
    return users


def write_users(path: Path, users: Mapping[str, Verifier]) -> None:
    """Replace the file, readable by its owner only, in one step."""
    lines = [f'"{name.replace(chr(34), chr(34) * 2)}" "{kept}"\n' for name, kept in users.items()]
    beside = path.with_name(path.name + ".new")
    beside.touch(0o600)
    beside.write_text("".join(lines), "utf-8")
    beside.replace(path)
