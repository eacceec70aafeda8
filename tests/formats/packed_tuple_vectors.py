"""The golden vectors of packed tuples and key hashes: how ``packed_tuple_v1.json`` is read.

A vector is the elements of a tuple, its packed bytes and their key hash. They were computed by two
libraries that share nothing with us: ``foundationdb`` 8.0.0 (``fdb.tuple``) and
``highwayhash-cffi`` 0.1.6; ``python tests/formats/packed_tuple_vectors.py`` writes the file again
where both are installed. The exception stands in ``NOT_AS_THE_LIBRARY``. Endpoints hold keys and
fences made of these bytes, so an existing line never changes.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

PATH = Path(__file__).with_name("packed_tuple_v1.json")

# Flow's published vectors of the key hash.
FLOW_KEY_HASHES: list[tuple[tuple[Any, ...], int]] = [
    ((True,), 0xB9F08D38),
    ((False,), 0x1505E3CB),
    (("foo", "bar"), 0x6AE719F3),
    (("foobar",), 0x8ADDDD61),
    (("foobas",), 0x7273E587),
    (("1",), 0xF4EC4D33),
    (("2",), 0x1E023D95),
    (("3",), 0x38A34EFE),
    (("10",), 0x17751BAE),
    (("11",), 0x87D93806),
    ((1,), 0x3C90C1D9),
    ((2,), 0x97901BAC),
    ((3,), 0xCBC7F1E2),
    ((10,), 0xD1D3F3EB),
]

# Eight bytes are enough for these, and that is how Flow writes them; the library takes ten.
NOT_AS_THE_LIBRARY = {
    (2**64 - 1,): bytes.fromhex("1cffffffffffffffff"),
    (-(2**64) + 1,): bytes.fromhex("0c0000000000000000"),
}

_HASH_KEY = bytes.fromhex("ba737e89155238d47d8067c35aad4d25ecdd1c3488227e011ffa480c022bd3ba")


@dataclass(frozen=True, slots=True)
class Vector:
    """One tuple, its bytes, its key hash."""

    elements: tuple[Any, ...]
    packed: bytes
    key_hash: int


def vectors() -> list[Vector]:
    """Return every vector of the file."""
    return [
        Vector(tuple(_from_json(e) for e in line[0]), bytes.fromhex(line[1]), int(line[2], 16))
        for line in json.loads(PATH.read_text("utf-8"))
    ]


def _from_json(element: Any) -> Any:
    match element:
        case {"bytes": digits}:
            return bytes.fromhex(digits)
        case {"double": digits}:
            return float.fromhex(digits)
        case {"integer": digits}:
            return int(digits)
        case _:
            return element


def _to_json(element: Any) -> Any:
    match element:
        case bytes():
            return {"bytes": element.hex()}
        case float():
            return {"double": element.hex()}
        case bool() | str() | None:
            return element
        case _:
            return {"integer": str(element)}


def _samples() -> list[tuple[Any, ...]]:
    edges = [0, 1]
    for bits in (7, 8, 15, 16, 31, 32, 40, 56, 62, 63):
        edges += [2**bits - 1, 2**bits, 2**bits + 1]
    integers = [sign * edge for edge in edges for sign in (1, -1)] + [2**64 - 2, 2**64, -(2**64)]
    integers += [2**64 - 1, -(2**64) + 1, 10**40, -(10**40)]
    doubles = [0.0, -0.0, 1.0, -1.0, 1.5, 5e-324, -1.7976931348623157e308, float("inf")]
    texts = ["", "a", "\0", "a\0b\0", "é", "日本語", "\U0001f600", "ÿ"]
    singles = [None, True, False, *integers, *doubles, *texts, b"", b"\0", b"\0\xff\0", b"\xff"]
    random = Random(20261115)
    mixed = [tuple(random.choice(singles) for _ in range(random.randint(2, 5))) for _ in range(40)]
    # Every length around the packets of the hash, so that each case of its remainder is met.
    lengths = [("x" * length,) for length in range(70)]
    return [
        *(elements for elements, _ in FLOW_KEY_HASHES),
        (),
        *((single,) for single in singles),
        *mixed,
        *lengths,
    ]


def _write() -> None:
    pack = importlib.import_module("fdb.tuple").pack
    highwayhash_64 = importlib.import_module("highwayhash").highwayhash_64
    lines = []
    for elements in dict.fromkeys(tuple(map(_Exactly, s)) for s in _samples()):
        plain = tuple(element.value for element in elements)
        packed = b"".join(NOT_AS_THE_LIBRARY.get((e,)) or pack((e,)) for e in plain)
        digest = int.from_bytes(highwayhash_64(_HASH_KEY, packed), "little") >> 32
        lines.append(json.dumps([[_to_json(e) for e in plain], packed.hex(), f"{digest:08x}"]))
    PATH.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


class _Exactly:
    """A value equal to itself only: Python takes 1, 1.0 and True, and 0.0 and -0.0, for one."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Exactly) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


if __name__ == "__main__":
    _write()
