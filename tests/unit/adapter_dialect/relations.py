"""The relations that the corpora are asked of, and rows of them: all types, with odd values."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from headwater.collection.types import SqlType, array, numeric, scalar

X: dict[str, SqlType] = {
    "id": scalar("integer"),
    "g": scalar("integer"),
    "i2": scalar("smallint"),
    "i4": scalar("integer"),
    "i8": scalar("bigint"),
    "n": numeric(12, 2),
    "m": numeric(20, 6),
    "z": numeric(38, 9),
    "r": scalar("real"),
    "f": scalar("double precision"),
    "s": scalar("text"),
    "w": scalar("text"),
    "num": scalar("text"),
    "b": scalar("boolean"),
    "d": scalar("date"),
    "ts": scalar("timestamp"),
    "tz": scalar("timestamptz"),
    "iv": scalar("interval"),
    "arr": array(scalar("integer")),
    "words": array(scalar("text")),
    "Odd Name": scalar("integer"),
}
Y: dict[str, SqlType] = {
    "id": scalar("integer"),
    "g": scalar("integer"),
    "k": scalar("bigint"),
    "label": scalar("text"),
    "amount": numeric(10, 3),
    "day": scalar("date"),
}
RELATIONS: dict[str, dict[str, SqlType]] = {"x": X, "y": Y}

_ALPHABET = ["a", "b", "B", "c", "é", "Ä", "ß", "日", "😀", " ", "%", "_", "\\", "'", "1", "-", "."]
_WORDS = ["apple", "Banana", "cherry pie", "a.b.c", "  pad ", ""]


def rows(seed: int, relation: str, count: int) -> Iterator[tuple[Any, ...]]:
    """Random rows of a relation: small domains, many NULLs and ties."""
    chance = random.Random(f"{seed} {relation}")

    def maybe(value: Any, rate: float = 0.15) -> Any:
        return None if chance.random() < rate else value

    def word(length: int) -> str:
        return "".join(chance.choice(_ALPHABET) for _ in range(chance.randint(0, length)))

    def money(digits: int, scale: int) -> Decimal:
        return Decimal(chance.randint(-(10**digits), 10**digits)).scaleb(-scale)

    def moment() -> datetime:
        start = datetime(1999, 12, 25, 13, 14, 15, 999_999)  # noqa: DTZ001  # a wall clock
        return start + timedelta(microseconds=chance.randint(-(10**16), 10**16))

    for number in range(count):
        if relation == "y":
            yield (
                number,
                maybe(chance.randint(0, 4)),
                maybe(chance.randint(0, 12) * 10**9),
                maybe(chance.choice(["one", "two", "Two", "three", ""])),
                maybe(money(5, 3)),
                maybe(date(2024, 1, 31) + timedelta(days=chance.randint(-40, 40))),
            )
            continue
        at = moment()
        yield (
            number,
            maybe(chance.randint(0, 4)),
            maybe(chance.randint(-100, 100)),
            maybe(chance.choice([0, 1, -1, 7, -7, chance.randint(-10_000, 10_000)])),
            maybe(chance.choice([0, 1, chance.randint(-(10**9), 10**9)])),
            maybe(chance.choice([Decimal("0.00"), Decimal("2.50"), Decimal("-2.50"), money(7, 2)])),
            maybe(money(9, 6)),
            maybe(money(9, chance.randint(0, 9))),
            maybe(chance.randint(-400, 400) / 4),
            maybe(chance.choice([0.0, 0.5, 1.5, 2.5, -2.5, chance.randint(-4000, 4000) / 4])),
            maybe(word(6)),
            _WORDS[number] if number < len(_WORDS) else maybe(chance.choice(_WORDS)),
            maybe(str(chance.randint(-999, 999))),
            maybe(chance.random() < 0.5),
            maybe(at.date()),
            maybe(at.replace(microsecond=chance.choice([0, at.microsecond]))),
            maybe(at.replace(tzinfo=UTC)),
            maybe(timedelta(microseconds=chance.randint(-(10**12), 10**12))),
            maybe([maybe(chance.randint(0, 3)) for _ in range(chance.randint(0, 3))]),
            maybe([maybe(word(2)) for _ in range(chance.randint(0, 3))]),
            maybe(chance.randint(0, 3)),
        )
