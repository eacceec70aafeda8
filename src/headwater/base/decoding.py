"""Bytes back into values, by types that are looked at once, one at a time.

msgspec looks at a type when it first decodes by it, and keeps what it found with the class before
it is complete: a second thread that decodes by the same class, or one that contains it, at that
moment reads what is not there yet, and the process dies (a segmentation fault; msgspec 0.22). So
whatever decodes by a type of ours does it here: the first time under one lock, and from then on by
the decoder that came of it.

Relied on by: every thread of a server that reads items of the log, definitions, heads of runs.
``tests/test_tidy.py`` refuses a ``decode(…, type=…)`` elsewhere.
"""

from __future__ import annotations

import threading
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
Bytes = bytes | bytearray | memoryview

_FIRST: Final = threading.Lock()
_JSON: Final[dict[Any, Any]] = {}
_MSGPACK: Final[dict[Any, Any]] = {}


def from_json(data: Bytes | str, type_: type[T]) -> T:
    """Return the value of a type that JSON holds.

    >>> from_json(b'["a", "b"]', tuple[str, ...])
    ('a', 'b')
    """
    decoder = _JSON.get(type_)
    if decoder is None:
        with _FIRST:
            decoder = _JSON.setdefault(type_, msgspec.json.Decoder(type_))
    return decoder.decode(data)  # type: ignore[no-any-return]


def from_msgpack(data: Bytes, type_: type[T]) -> T:
    """Return the value of a type that MessagePack holds."""
    decoder = _MSGPACK.get(type_)
    if decoder is None:
        with _FIRST:
            decoder = _MSGPACK.setdefault(type_, msgspec.msgpack.Decoder(type_))
    return decoder.decode(data)  # type: ignore[no-any-return]


def converted(value: Any, type_: type[T]) -> T:
    """Return a value of a type from the simpler ones that it was decoded into."""
    if type_ not in _JSON:
        with _FIRST:
            _JSON.setdefault(type_, msgspec.json.Decoder(type_))
    return msgspec.convert(value, type_)
