"""A client of the protocol that says anything at all, and notes what it is answered.

:class:`RawClient` speaks PostgreSQL's protocol without a driver between, so that it can say what no
driver would: messages of :func:`messages`, in any order, of any length. What it counts as wrong is
of three kinds (:class:`Wrong`): an answer that says XX000, no answer, and an end of the connection
that was not told.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

ANSWER_SECONDS: Final = 60.0
"""What has no answer by then has none."""
CANCEL_SECONDS: Final = 6.0
"""A statement that is still answering then is asked to end; some go on for ever by right."""
_READY: Final = b"Z"
_KINDS: Final = ("statement", "portal")


@dataclass(frozen=True, slots=True)
class Wrong:
    """What was said, and what is wrong with the answer."""

    said: str
    answer: str


class HungUp(Exception):
    """The server has ended the connection; whether it said why."""

    def __init__(self, told: bool) -> None:
        super().__init__("told" if told else "not told")
        self.told = told


def message(tag: bytes, payload: bytes = b"") -> bytes:
    """A message of the protocol."""
    return tag + struct.pack("!i", len(payload) + 4) + payload


def query(sql: str) -> bytes:
    """A simple query."""
    return message(b"Q", sql.encode("utf-8", "surrogatepass") + b"\0")


class RawClient:
    """A connection, and the codes of all errors that it was told."""

    def __init__(self, address: tuple[str, int], options: str = "") -> None:
        self._address = address
        self._socket = socket.create_connection(address, ANSWER_SECONDS)
        self._seen = b""
        self._key = b""
        self.codes: list[str] = []
        self.internal: str | None = None
        """The text of an XX000 since it was asked last."""
        payload = struct.pack("!i", 196608)
        for word in ("user", "headwater", "options", options):
            payload += word.encode() + b"\0"
        self.say(struct.pack("!i", len(payload) + 5) + payload + b"\0")
        self.listen()

    def say(self, said: bytes) -> None:
        """Send bytes, whatever they are; a server that has hung up does not hear them."""
        try:
            self._socket.sendall(said)
        except OSError:
            raise HungUp(told=bool(self.codes)) from None

    def listen(self) -> None:
        """Read up to the next ReadyForQuery; a COPY that is asked for is given nonsense."""
        began, asked, told = time.monotonic(), False, False
        while True:
            left = began + (ANSWER_SECONDS if asked else CANCEL_SECONDS) - time.monotonic()
            if left <= 0:
                if asked:
                    raise TimeoutError
                asked = True
                self._cancel()
                continue
            self._socket.settimeout(left)
            try:
                tag, payload = self._message()
            except TimeoutError:
                continue
            except OSError:
                raise HungUp(told) from None
            if tag == b"E":
                told = b"SFATAL\0" in payload
                self._note(payload)
            elif tag == b"G":
                self.say(message(b"d", b"1\tx\n\\.\n") + message(b"c"))
            elif tag == b"K":
                self._key = payload
            elif tag == _READY:
                return

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def listen_to_the_end(self) -> None:
        """Say no more, and read all that is still said."""
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            self._socket.shutdown(socket.SHUT_WR)
            while True:
                self._socket.settimeout(max(0.001, began + ANSWER_SECONDS - time.monotonic()))
                tag, payload = self._message()
                if tag == b"E":
                    self._note(payload)

    def _message(self) -> tuple[bytes, bytes]:
        while len(self._seen) < 5 or len(self._seen) < self._length():
            piece = self._socket.recv(1 << 16)
            if not piece:
                raise ConnectionError
            self._seen += piece
        length = self._length()
        tag, payload = self._seen[:1], self._seen[5:length]
        self._seen = self._seen[length:]
        return tag, payload

    def _length(self) -> int:
        return int(struct.unpack("!i", self._seen[1:5])[0]) + 1

    def _note(self, payload: bytes) -> None:
        fields = {f[:1]: f[1:].decode("utf-8", "replace") for f in payload.split(b"\0") if f}
        code = fields.get(b"C", "")
        self.codes.append(code)
        if code == "XX000":
            self.internal = fields.get(b"M", "")

    def _cancel(self) -> None:
        with socket.create_connection(self._address, ANSWER_SECONDS) as other:
            asked = struct.pack("!i", 80877102) + self._key
            other.sendall(struct.pack("!i", len(asked) + 4) + asked)


class Hostile:
    """Says one thing after another, and judges the answers."""

    def __init__(self, address: tuple[str, int], options: str) -> None:
        self._address = address
        self._options = options
        self._client: RawClient | None = None
        self.wrong: list[Wrong] = []
        self.codes: dict[str, int] = {}

    def ask(self, sql: str) -> None:
        """Send a simple query, on the connection of the last if it is still there."""
        client = self._client = self._client or RawClient(self._address, self._options)
        self._judge(client, sql, lambda: client.say(query(sql)), client.listen)

    def converse(self, said: Sequence[tuple[str, bytes]]) -> None:
        """Say all of a conversation on a connection of its own, and hang up."""
        self.leave()
        client = self._client = RawClient(self._address, self._options)
        whole = b"".join(each for _, each in said) + message(b"S") + message(b"X")
        shown = " ; ".join(name for name, _ in said)
        self._judge(client, shown, lambda: client.say(whole), client.listen_to_the_end)
        self.leave()

    def _judge(
        self, client: RawClient, shown: str, say: Callable[[], None], listen: Callable[[], None]
    ) -> None:
        try:
            say()
            listen()
        except HungUp as end:
            if not end.told:
                self.wrong.append(Wrong(shown, "hung up without a word"))
            self.leave()
        except TimeoutError:
            self.wrong.append(Wrong(shown, f"no answer for {ANSWER_SECONDS:.0f} s"))
            self.leave()
        if client.internal is not None:
            self.wrong.append(Wrong(shown, client.internal))
            client.internal = None
        for code in client.codes:
            self.codes[code] = self.codes.get(code, 0) + 1
        client.codes.clear()

    def leave(self) -> None:
        """Hang up; what is said next is said on another connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


# --- messages -------------------------------------------------------------------------------------


def messages(random: Random, texts: Callable[[], str]) -> Iterator[tuple[str, bytes]]:
    """Yield a conversation: what each message is called, and its bytes."""
    for _ in range(random.randrange(1, 9)):
        kind = random.choice(_MADE)
        made = kind(random, texts)
        if random.random() < 0.12:
            name, made = "broken ", _broken(random, made)
        else:
            name = ""
        yield f"{name}{kind.__name__[1:]} {made[:200]!r}", made


def _name(random: Random) -> bytes:
    return random.choice((b"", b"", b"", b"", b"", b"a", b"a", b"b", b"c")) + b"\0"


def _counted(numbers: Sequence[int], pattern: str) -> bytes:
    return struct.pack("!H", len(numbers)) + b"".join(struct.pack(pattern, n) for n in numbers)


def _parse(random: Random, texts: Callable[[], str]) -> bytes:
    oids = [random.choice(_OIDS) for _ in range(random.choice((0, 0, 1, 2, 5)))]
    text = texts().encode("utf-8", "surrogatepass")
    return message(b"P", _name(random) + text + b"\0" + _counted(oids, "!I"))


def _bind(random: Random, _: Callable[[], str]) -> bytes:
    formats = [
        random.choice((0, 0, 1, 1, 2, -1))
        for _number in range(random.choice((0, 0, 0, 1, 1, 2, 3)))
    ]
    values = []
    for _number in range(random.choice((0, 0, 0, 0, 1, 2, 2, 5))):
        value = random.choice((*_VALUES, random.randbytes(random.choice((1, 2, 4, 8, 16, 21)))))
        size = -1 if value is None else len(value)
        values.append(struct.pack("!i", size) + (value or b""))
    results = [random.choice((0, 1, 1, 7)) for _number in range(random.choice((0, 0, 1, 2)))]
    payload = _name(random) + _name(random) + _counted(formats, "!h")
    payload += struct.pack("!H", len(values)) + b"".join(values) + _counted(results, "!h")
    return message(b"B", payload)


def _describe(random: Random, _: Callable[[], str]) -> bytes:
    return message(b"D", random.choice((b"S", b"P", b"x")) + _name(random))


def _execute(random: Random, _: Callable[[], str]) -> bytes:
    rows = random.choice((0, 0, 1, 2, -1, (1 << 31) - 1))
    return message(b"E", _name(random) + struct.pack("!i", rows))


def _close(random: Random, _: Callable[[], str]) -> bytes:
    return message(b"C", random.choice((b"S", b"P", b"x")) + _name(random))


def _sync(random: Random, _: Callable[[], str]) -> bytes:
    return message(random.choice((b"S", b"H")))


def _copy(random: Random, _: Callable[[], str]) -> bytes:
    tag = random.choice((b"d", b"c", b"f"))
    return message(tag, b"no\0" if tag == b"f" else random.randbytes(9) if tag == b"d" else b"")


def _call(random: Random, _: Callable[[], str]) -> bytes:
    return message(b"F", struct.pack("!IHHH", random.choice(_OIDS), 0, 0, 0))


def _password(_: Random, __: Callable[[], str]) -> bytes:
    return message(b"p", b"secret\0")


def _query(_: Random, texts: Callable[[], str]) -> bytes:
    return query(texts())


def _broken(random: Random, made: bytes) -> bytes:
    """A message cut short, with a wrong length, a wrong tag, or other bytes in it."""
    match random.randrange(4):
        case 0:
            cut = random.randrange(5, len(made) + 1)
            return made[:1] + struct.pack("!i", cut - 1) + made[5:cut]
        case 1:
            return made[:1] + struct.pack("!i", random.choice((-1, 0, 3, 4, 5, 1 << 30))) + made[5:]
        case 2:
            return random.choice((b"!", b"Z", b"\0", b"v", b"B", b"E")) + made[1:]
        case _:
            place = random.randrange(5, len(made) + 1)
            payload = made[5:place] + random.randbytes(4) + made[place:]
            return message(made[:1], payload)


_OIDS: Final = (0, 16, 17, 20, 21, 23, 25, 114, 600, 700, 701, 1042, 1043, 1082, 1083, 1114, 1184,
                1186, 1231, 1700, 2950, 3802, 705, 2249, 1007, 1, (1 << 32) - 1)  # fmt: skip
_VALUES: Final[tuple[bytes | None, ...]] = (
    *(None, b"", b"1", b"x", b"-1", b"NaN", b"1e999", b"\xff\xfe", b"\0", b"t", b"{1,2}"),
    *(b"2026-01-01", b"9999-99-99", b"\x00\x00\x00\x01", b"\x7f\xff\xff\xff\xff\xff\xff\xff"),
    *(b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x05", b"9" * 50),
)
_MADE: Final[tuple[Callable[[Random, Callable[[], str]], bytes], ...]] = (
    *(_parse, _parse, _parse, _bind, _bind, _bind, _describe, _describe, _execute, _execute),
    *(_close, _sync, _sync, _copy, _call, _password, _query),
)
