"""Secrets at rest: sealed with a key that is kept outside the location.

    sealed  =  version (1 byte) | key id (8) | nonce (12) | AES-256-GCM of the value

The id of the secret is authenticated along with it, so that one sealed value cannot stand in for
another. Who has the location and not the key has no secret; who has lost the key has lost the
secrets, and is told which key it was.

The key is a file of 32 bytes in base64 that only its owner can read. It is made at the first
secret, by default in the user's configuration directory (:func:`default_key_file`).
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headwater.adapter.object_errors import SecretUnreadable

VERSION: Final = b"\x01"
KEY_BYTES: Final = 32
_KEY_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_OTHERS: Final = 0o077


def default_key_file() -> Path:
    """Return where the key is, unless somebody says otherwise."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "headwater" / "secrets.key"


def key_of_file(path: Path, *, create: bool) -> bytes:
    """Return the key in a file; make one if there is none, and one is needed."""
    if create and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass  # Another process was faster; its key is as good.
        else:
            with os.fdopen(descriptor, "wb") as file:
                file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
    try:
        if path.stat().st_mode & _OTHERS:
            raise SecretUnreadable(
                f"the key file {path} can be read by others", f"chmod 600 {path}"
            )
        key = base64.b64decode(path.read_bytes().strip(), validate=True)
    except OSError as error:
        raise SecretUnreadable(
            f"the key file {path} cannot be read: {error.strerror}",
            "Put the key back, or say where it is by HEADWATER_SECRETS_KEY.",
        ) from error
    except binascii.Error as error:
        raise SecretUnreadable(f"the key file {path} holds no key", "Put the key back.") from error
    if len(key) != KEY_BYTES:
        raise SecretUnreadable(f"the key file {path} holds no key", "Put the key back.")
    return key


class Vault:
    """Seals and opens secrets with one key."""

    def __init__(self, key: Callable[[bool], bytes]) -> None:
        """``key`` is asked when it is needed: to seal (True: it may be made), or to open."""
        self._key = key

    @classmethod
    def of_file(cls, path: Path) -> Vault:
        """Return the vault whose key is in a file."""
        return cls(lambda create: key_of_file(path, create=create))

    @classmethod
    def of_key(cls, key: bytes) -> Vault:
        """Return the vault of a key that is kept elsewhere."""
        return cls(lambda _: key)

    def sealed(self, name: str, value: str) -> bytes:
        """Return a value as it is stored."""
        key, nonce = self._key(True), secrets.token_bytes(_NONCE_BYTES)
        text = AESGCM(key).encrypt(nonce, value.encode(), name.encode())
        return VERSION + _id(key) + nonce + text

    def opened(self, name: str, sealed: bytes) -> str:
        """Return the value again."""
        key = self._key(False)
        known, rest = sealed[1 : 1 + _KEY_ID_BYTES], sealed[1 + _KEY_ID_BYTES :]
        if sealed[:1] != VERSION:
            raise SecretUnreadable("a newer version sealed it", "Use that version.")
        if known != _id(key):
            raise SecretUnreadable(
                f"it was sealed with the key {known.hex()}, and this is key {_id(key).hex()}",
                "Put the key back, or give the secret its value again: ALTER SECRET … AS '…'.",
            )
        nonce, text = rest[:_NONCE_BYTES], rest[_NONCE_BYTES:]
        try:
            return AESGCM(key).decrypt(nonce, text, name.encode()).decode()
        except InvalidTag as error:
            raise SecretUnreadable(
                "what is stored was changed", "Give it its value again: ALTER SECRET … AS '…'."
            ) from error


def _id(key: bytes) -> bytes:
    return sha256(b"headwater secrets key" + key).digest()[:_KEY_ID_BYTES]
