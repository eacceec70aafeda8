"""TLS for gRPC: what each side shows, and whom it trusts; files in PEM.

    runtime     trusts ``ca`` (or the roots that gRPC ships, if that is ``system``), and shows
                ``certificate`` and ``key``, if the connector asks for one; ``name`` is the name in
                the connector's certificate, where that is not the host of its address
    connector   shows ``certificate`` and ``key``, and with ``client_ca`` refuses who shows none
                that was signed by it

A key is named by its file and never read into a configuration. Files are read when a connection is
made, so that what was renewed is used from the next one on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from headwater.base.errors import InvalidUsage

SYSTEM: Final = "system"
"""In the place of a file: the roots that gRPC ships."""


def _read(path: str, what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidUsage(f"cannot read the {what} {path!r}: {error.strerror}") from error


def _pair(key: str, certificate: str) -> tuple[bytes, bytes]:
    if not key or not certificate:
        raise InvalidUsage("a certificate needs its key, and a key its certificate: give both")
    return _read(key, "key"), _read(certificate, "certificate")


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The runtime's side."""

    ca: str
    certificate: str = ""
    key: str = ""
    name: str = ""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ClientTls | None:
        """Return what the options of an endpoint say; ``None``: no encryption."""
        given = {
            name: config.get(f"tls_{name}", "") for name in ("ca", "certificate", "key", "name")
        }
        return cls(**given) if given["ca"] else None

    def credentials(self) -> Any:
        """Return what gRPC needs to connect."""
        ca = None if self.ca == SYSTEM else _read(self.ca, "certificates to trust")
        if not self.key and not self.certificate:
            return grpc.ssl_channel_credentials(ca)
        return grpc.ssl_channel_credentials(ca, *_pair(self.key, self.certificate))

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """Return what gRPC needs to know of the connector."""
        return (("grpc.ssl_target_name_override", self.name),) if self.name else ()


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The connector's side."""

    certificate: str
    key: str
    client_ca: str = ""

    def credentials(self) -> Any:
        """Return what gRPC needs to listen."""
        pair = _pair(self.key, self.certificate)
        if not self.client_ca:
            return grpc.ssl_server_credentials([pair])
        trusted = _read(self.client_ca, "certificates to trust")
        return grpc.ssl_server_credentials([pair], trusted, require_client_auth=True)
