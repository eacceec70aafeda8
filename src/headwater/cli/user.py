"""``headwater user``: make, change or remove a user in a file of users."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headwater.base.errors import InvalidUsage


def user(
    name: Annotated[str, typer.Argument(help="Name of the user.")],
    users: Annotated[Path, typer.Option(help="File of users; made if missing.")],
    remove: Annotated[bool, typer.Option("--remove", help="Remove the user.")] = False,
) -> None:
    """Make a user, or give one a new password; it is asked for, or read from standard input."""
    from headwater.adapter.pgwire.users import new_verifier, read_users, write_users

    kept = read_users(users) if users.exists() else {}
    if remove:
        if kept.pop(name, None) is None:
            raise InvalidUsage(f'there is no user "{name}" in {users}')
        write_users(users, kept)
        return
    if not name or any(character in name for character in "\r\n\0"):
        raise InvalidUsage("a name is not empty and has no line ends")
    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise InvalidUsage("an empty password is none: clients refuse to send it")
    kept[name] = new_verifier(password)
    write_users(users, kept)
    print(f'user "{name}" is in {users}; a running server reads it when it starts again')
