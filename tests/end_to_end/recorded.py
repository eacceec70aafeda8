"""Recordings of conversations: how they are written, read and played.

A recording is a text, one message a line: ``>`` is what the client sends, ``<`` what it is
answered, ``#`` a comment. Bytes that do not print stand in hexadecimal after a backslash.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from tests.end_to_end.memory_backend import WAIT_SECONDS

ANSWERED_ONCE = ("P", "B", "C")
"""Messages with exactly one answer, which Flush brings."""


class Client:
    """Sends and reads what it is told, and nothing of its own."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.socket.settimeout(WAIT_SECONDS)
        self.file = self.socket.makefile("rb")

    def send(self, written: str) -> None:
        """Send a message as it is written down."""
        tag, payload = parsed(written)
        self.socket.sendall(tag + struct.pack("!i", len(payload) + 4) + payload)

    def read(self) -> str:
        """The next message, as it is written down."""
        tag = self.file.read(1)
        if not tag:
            return "closed"
        (length,) = struct.unpack("!i", self.file.read(4))
        payload = self.file.read(length - 4)
        if tag == b"K":
            return f"K ({len(payload) - 4} bytes of secret)"  # Nobody can foresee them.
        return f"{tag.decode()} {readable(payload)}".rstrip()

    def close(self) -> None:
        """Hang up."""
        self.file.close()
        self.socket.close()


def readable(payload: bytes) -> str:
    """Printable as it is; everything else, and the backslash, in hexadecimal."""
    return "".join(
        chr(byte) if 0x20 < byte < 0x7F and byte != 0x5C else f"\\{byte:02x}" for byte in payload
    )


def parsed(written: str) -> tuple[bytes, bytes]:
    """Tag and payload; the start-up packet has no tag."""
    tag, _, payload = written.partition(" ")
    raw = bytearray()
    at = 0
    while at < len(payload):
        if payload[at] == "\\":
            raw.append(int(payload[at + 1 : at + 3], 16))
            at += 3
        else:
            raw.append(ord(payload[at]))
            at += 1
    return b"" if tag == "startup" else tag.encode(), bytes(raw)


def play(text: str, client: Client, kept: Callable[[str], str | None] = lambda line: line) -> str:
    """Send what the recording sends; the recording as it is answered now.

    ``kept`` says how an answer is written down, and None that it is not.
    """
    played: list[str] = []
    unanswered = 0
    copying = ""
    for line in text.splitlines():
        if line.startswith("<"):
            continue
        played.append(line)
        if not line.startswith("> "):
            continue
        client.send(line[2:])
        tag = line[2:].split(" ")[0]
        unanswered += tag in ANSWERED_ONCE
        reads = tag in ("startup", "Q", "S", "X") or (tag in ("c", "f") and copying == "Q")
        if not reads and tag != "H":
            continue
        count = 0
        while reads or count < unanswered:
            answer = client.read()
            count += 1
            written = kept(answer)
            if written is not None:
                played.append(f"< {written}")
            if answer.startswith(("Z", "closed")):
                copying = ""
                break
            if answer.startswith("G"):
                copying = tag
                break
        unanswered = 0
    return "\n".join(played) + "\n"
