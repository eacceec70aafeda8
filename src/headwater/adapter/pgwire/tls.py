"""The server's certificate: a TLS context from files, and the hash that names its channel.

The hash (``tls-server-end-point``, RFC 5929) is of the certificate, by the hash function of its
signature, SHA-256 in place of MD5 and SHA-1. To know the function we read one object identifier of
the certificate; where it is none we know (Ed25519 has none, RSA-PSS hides it) there is no hash, and
clients are offered SCRAM without channel binding.
"""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.base.errors import InvalidUsage

# Object identifiers as DER has them.
_HASHES: Final = {
    bytes.fromhex("2a864886f70d010104"): "sha256",  # md5WithRSA
    bytes.fromhex("2a864886f70d010105"): "sha256",  # sha1WithRSA
    bytes.fromhex("2a864886f70d01010b"): "sha256",
    bytes.fromhex("2a864886f70d01010c"): "sha384",
    bytes.fromhex("2a864886f70d01010d"): "sha512",
    bytes.fromhex("2a8648ce3d0401"): "sha256",  # ecdsa-with-SHA1
    bytes.fromhex("2a8648ce3d040302"): "sha256",
    bytes.fromhex("2a8648ce3d040303"): "sha384",
    bytes.fromhex("2a8648ce3d040304"): "sha512",
}
_SEQUENCE, _OBJECT = 0x30, 0x06


@dataclass(frozen=True, slots=True)
class Tls:
    """How the server encrypts. ``required``: clients without TLS are refused."""

    context: ssl.SSLContext
    channel: bytes | None
    required: bool = False


def of_files(certificate: Path, key: Path, *, required: bool = False) -> Tls:
    """TLS with this certificate (and the chain after it) and its key, both PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
        pem = certificate.read_text("ascii", "replace")
        begin = pem.index("-----BEGIN CERTIFICATE-----")
        end = pem.index("-----END CERTIFICATE-----", begin) + len("-----END CERTIFICATE-----")
        der = ssl.PEM_cert_to_DER_cert(pem[begin:end])
    except (OSError, ssl.SSLError, ValueError) as error:
        raise InvalidUsage(
            f"TLS cannot be set up from {certificate} and {key}: {error}; "
            "both are PEM files, and the key is that of the certificate"
        ) from error
    return Tls(context, channel_of(der), required)


def channel_of(der: bytes) -> bytes | None:
    """The ``tls-server-end-point`` of a certificate, if it has one."""
    try:
        _, whole, _ = _element(der, 0)
        _, _, behind_body = _element(whole, 0)
        tag, algorithm, _ = _element(whole, behind_body)
        object_tag, identifier, _ = _element(algorithm, 0)
    except IndexError:
        return None
    if (tag, object_tag) != (_SEQUENCE, _OBJECT):
        return None
    name = _HASHES.get(identifier)
    return None if name is None else hashlib.new(name, der).digest()


def _element(der: bytes, at: int) -> tuple[int, bytes, int]:
    """``(tag, content, where the next begins)`` of the DER element at ``at``."""
    tag, length = der[at], der[at + 1]
    at += 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(der[at : at + count], "big")
        at += count
    return tag, der[at : at + length], at + length
