"""TPC-H: its eight tables, loaded at once, and its two refresh functions for ever after.

    place 0        the load: everything, in one transaction
    place n > 0    one pair of refreshes: ``refresh`` new orders come with their lines (RF1), and as
                   many of the oldest go with theirs (RF2)

So there are always as many orders as at first (``orders``; 1,500,000 are scale factor 1, and the
other tables follow in proportion). Order ``i`` and all its lines are a function of ``i`` and the
seed, and which orders are there at a place is arithmetic: any range can be made at once, again, and
in pieces. Orders keep coming, so their keys grow: sparse, eight of 32, as specified.

Columns, domains and correlations are those of section 4.2 as far as the 22 queries look at them
(``generators/tpch_domains.py``): customers without orders (every third), four suppliers of a part
by the specified formula, one to seven lines of an order whose dates follow its own, flags and
status that follow from dates, total prices that follow from lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.storage.generators.chance import Longs, below
from headwater.storage.generators.generator import with_diffs
from headwater.storage.generators.tpch_domains import (
    INSTRUCTIONS,
    MODES,
    MONEY,
    NATIONS,
    PRIORITIES,
    REGIONS,
    SCHEMAS,
    SEGMENTS,
    SPECIFIED,
    WORDS,
)

ORDERS_AT_SCALE_1: Final = 1_500_000
REFRESHED_AT_SCALE_1: Final = 1_500
ROWS_AT_ONCE: Final = 20_000
LINES_MAX: Final = 7
FIRST_DAY: Final = np.datetime64(SPECIFIED.first_day)
DAYS: Final = int((np.datetime64(SPECIFIED.last_day) - FIRST_DAY).astype(int))
CURRENT_DAY: Final = np.datetime64("1995-06-17")

Made = Iterator[tuple[str, Longs, pa.Table]]


@dataclass(frozen=True, slots=True)
class Tpch:
    """The tables of TPC-H, refreshed for ever."""

    orders: int = 1_500
    refresh: int = 0
    """How many orders come, and go, at a place; 0 for what the specification says."""
    seed: int = 0
    name: str = "tpch"

    def __post_init__(self) -> None:
        if self.orders < 1 or not 0 <= self.refresh <= self.orders:
            raise ValueError("there is an order at least, and at most all are refreshed at once")

    @property
    def outputs(self) -> Mapping[str, pa.Schema]:
        """Eight outputs."""
        return SCHEMAS

    @property
    def refreshed(self) -> int:
        """How many orders come, and go, at every place but the first."""
        return self.refresh or max(1, self.orders * REFRESHED_AT_SCALE_1 // ORDERS_AT_SCALE_1)

    def _scaled(self, at_scale_1: int, least: int) -> int:
        return max(least, at_scale_1 * self.orders // ORDERS_AT_SCALE_1)

    @property
    def _parts(self) -> int:
        return self._scaled(200_000, 20)

    @property
    def _suppliers(self) -> int:
        return self._scaled(10_000, 8)

    @property
    def _customers(self) -> int:
        return self._scaled(150_000, 15)

    def at(self, places: Longs) -> Made:
        """Return the load, and the refreshes of the other places."""
        if len(places) and places[0] == 0:
            yield from self._load()
            places = places[1:]
        some = max(1, ROWS_AT_ONCE // self.refreshed)
        for start in range(0, len(places), some):
            these = places[start : start + some]
            pair = (these[:, None] - 1) * self.refreshed + np.arange(self.refreshed)
            at = np.repeat(these, self.refreshed)
            yield from self._ordered(self.orders + pair.reshape(-1), at, 1)
            yield from self._ordered(pair.reshape(-1), at, -1)

    # ---- the load ----------------------------------------------------------------------------

    def _load(self) -> Made:
        tables = (
            ("region", 5, self._region),
            ("nation", 25, self._nation),
            ("supplier", self._suppliers, self._supplier),
            ("customer", self._customers, self._customer),
            ("part", self._parts, self._part),
            ("partsupp", 4 * self._parts, self._partsupp),
        )
        for table, rows, make in tables:
            for numbers in _pieces(rows):
                payload = pa.table(make(numbers), schema=SCHEMAS[table])
                yield table, np.zeros_like(numbers), with_diffs(payload, 1)
        for numbers in _pieces(self.orders):
            yield from self._ordered(numbers, np.zeros_like(numbers), 1)

    def _region(self, numbers: Longs) -> list[Any]:
        return [numbers, _chosen(REGIONS, numbers), self._text(10, numbers)]

    def _nation(self, numbers: Longs) -> list[Any]:
        names, regions = zip(*NATIONS, strict=True)
        of = np.asarray(regions)[numbers]
        return [numbers, _chosen(names, numbers), of, self._text(11, numbers)]

    def _supplier(self, numbers: Longs) -> list[Any]:
        nations = self._drawn(20, numbers, 25)
        said = self._text(23, numbers)
        complained = self._drawn(24, numbers, 2_000) == 0
        text = pc.if_else(pa.array(complained), "the Customer sent bold Complaints", said)
        return [
            numbers + 1,
            _numbered("Supplier#", numbers + 1),
            self._text(21, numbers),
            nations,
            self._phones(22, numbers, nations),
            _money(self._drawn(25, numbers, 1_099_999) - 99_999),
            text,
        ]

    def _customer(self, numbers: Longs) -> list[Any]:
        nations = self._drawn(30, numbers, 25)
        return [
            numbers + 1,
            _numbered("Customer#", numbers + 1),
            self._text(31, numbers),
            nations,
            self._phones(32, numbers, nations),
            _money(self._drawn(33, numbers, 1_099_999) - 99_999),
            _chosen(SEGMENTS, self._drawn(34, numbers, len(SEGMENTS))),
            self._text(35, numbers),
        ]

    def _part(self, numbers: Longs) -> list[Any]:
        brands = self._drawn(40, numbers, len(SPECIFIED.brands))
        makers = [f"Manufacturer#{brand[6]}" for brand in SPECIFIED.brands]
        colours = len(SPECIFIED.colours)
        first = self._drawn(41, numbers, colours)
        # Five different ones: four steps do not go round.
        step = 1 + self._drawn(42, numbers, 22)
        named = [_chosen(SPECIFIED.colours, (first + n * step) % colours) for n in range(5)]
        return [
            numbers + 1,
            pc.binary_join_element_wise(*named, " "),
            _chosen(makers, brands),
            _chosen(SPECIFIED.brands, brands),
            _chosen(SPECIFIED.types, self._drawn(43, numbers, len(SPECIFIED.types))),
            pa.array(1 + self._drawn(44, numbers, 50), pa.int32()),
            _chosen(SPECIFIED.containers, self._drawn(45, numbers, len(SPECIFIED.containers))),
            _money(_retail_price(numbers + 1)),
            self._text(46, numbers),
        ]

    def _partsupp(self, numbers: Longs) -> list[Any]:
        parts = numbers // 4 + 1
        return [
            parts,
            self._supplier_of(parts, numbers % 4),
            pa.array(1 + self._drawn(50, numbers, SPECIFIED.available_max), pa.int32()),
            _money(100 + self._drawn(51, numbers, 99_901)),
            self._text(52, numbers),
        ]

    # ---- orders and their lines --------------------------------------------------------------

    def _ordered(self, numbers: Longs, places: Longs, diff: int) -> Made:
        """Return orders and their lines, which come or go."""
        lengths = 1 + self._drawn(60, numbers, LINES_MAX)
        starts = np.cumsum(lengths) - lengths
        days = FIRST_DAY + self._drawn(61, numbers, DAYS + 1)
        of = np.repeat(np.arange(len(numbers)), lengths)
        line = np.arange(len(of)) - starts[of]
        lines, charged, shipped = self._lines(numbers[of], line, days[of])
        still_open = np.add.reduceat(shipped > CURRENT_DAY, starts)
        status = np.where(still_open == lengths, 1, np.where(still_open == 0, 0, 2))
        requested = self._drawn(62, numbers, 100) == 0
        orders = [
            _sparse(numbers),
            self._ordering_customer(numbers),
            _chosen(("F", "O", "P"), status),
            _money(np.add.reduceat(charged, starts)),
            _days(days),
            _chosen(PRIORITIES, self._drawn(63, numbers, len(PRIORITIES))),
            _numbered("Clerk#", 1 + self._drawn(64, numbers, max(1, self.orders // 1_500))),
            pa.array(np.zeros(len(numbers)), pa.int32()),
            pc.if_else(pa.array(requested), "special bold requests", self._text(65, numbers)),
        ]
        table = pa.table(orders, schema=SCHEMAS["orders"])
        yield "orders", places, with_diffs(table, diff)
        table = pa.table(lines, schema=SCHEMAS["lineitem"])
        yield "lineitem", places[of], with_diffs(table, diff)

    def _lines(self, orders: Longs, line: Longs, days: Any) -> tuple[list[Any], Longs, Any]:
        """Return lines, what each of them charges, and when it is shipped."""
        numbers = orders * LINES_MAX + line
        parts = 1 + self._drawn(70, numbers, self._parts)
        quantity = 1 + self._drawn(71, numbers, SPECIFIED.quantity_max)
        price = quantity * _retail_price(parts)
        discount, tax = self._drawn(72, numbers, 11), self._drawn(73, numbers, 9)
        ship = days + 1 + self._drawn(74, numbers, 121)
        commit = days + 30 + self._drawn(75, numbers, 61)
        receipt = ship + 1 + self._drawn(76, numbers, 30)
        flags = np.where(receipt <= CURRENT_DAY, self._drawn(77, numbers, 2), 2)
        columns = [
            _sparse(orders),
            parts,
            self._supplier_of(parts, self._drawn(78, numbers, 4)),
            pa.array(line + 1, pa.int32()),
            _money(quantity * 100),
            _money(price),
            _money(discount),
            _money(tax),
            _chosen(("R", "A", "N"), flags),
            _chosen(("F", "O"), (ship > CURRENT_DAY).astype(np.int64)),
            _days(ship),
            _days(commit),
            _days(receipt),
            _chosen(INSTRUCTIONS, self._drawn(79, numbers, len(INSTRUCTIONS))),
            _chosen(MODES, self._drawn(80, numbers, len(MODES))),
            self._text(81, numbers),
        ]
        return columns, price * (100 - discount) * (100 + tax) // 10_000, ship

    def _ordering_customer(self, numbers: Longs) -> Longs:
        drawn = 1 + self._drawn(66, numbers, self._customers)
        return np.where(drawn % 3 == 0, drawn - 1, drawn)

    def _supplier_of(self, parts: Longs, number: Longs) -> Longs:
        many = self._suppliers
        # With few suppliers the specified stride would meet the same one again: it is bounded.
        stride = many // 4 + (parts - 1) // many % max(1, many // 12)
        return (parts + number * stride) % many + 1

    # ---- values ------------------------------------------------------------------------------

    def _drawn(self, stream: int, numbers: Longs, bound: int) -> Longs:
        return below(self.seed, stream, numbers, bound)

    def _text(self, stream: int, numbers: Longs) -> pa.Array:
        drawn = self._drawn(1_000 + stream, numbers, len(WORDS) ** 3)
        some = (drawn // len(WORDS) ** n % len(WORDS) for n in range(3))
        return pc.binary_join_element_wise(*(_chosen(WORDS, each) for each in some), " ")

    def _phones(self, stream: int, numbers: Longs, nations: Longs) -> pa.Array:
        drawn = self._drawn(2_000 + stream, numbers, 900 * 900 * 9_000)
        parts = (
            nations + 10,
            100 + drawn % 900,
            100 + drawn // 900 % 900,
            1_000 + drawn // 810_000,
        )
        texts = [pa.array(part).cast(pa.string()) for part in parts]
        return pc.binary_join_element_wise(*texts, "-")


def _pieces(rows: int) -> Iterator[Longs]:
    for start in range(0, rows, ROWS_AT_ONCE):
        yield np.arange(start, min(rows, start + ROWS_AT_ONCE), dtype=np.int64)


def _chosen(values: Sequence[str], indices: Longs) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(indices, pa.int64()))


def _money(cents: Longs) -> pa.Array:
    """Return exact decimals: a 128-bit number whose high word repeats the sign of the low one."""
    words = np.stack([cents, cents >> 63], axis=1)
    return pa.Array.from_buffers(MONEY, len(cents), [None, pa.py_buffer(words.tobytes())])


def _numbered(prefix: str, numbers: Longs) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0")
    return pc.binary_join_element_wise(prefix, digits, "")


def _days(days: Any) -> pa.Array:
    return pa.array(np.asarray(days).astype("datetime64[D]"))


def _sparse(numbers: Longs) -> Longs:
    return numbers // 8 * 32 + numbers % 8 + 1


def _retail_price(parts: Longs) -> Longs:
    return 90_000 + parts // 10 % 20_001 + 100 * (parts % 1_000)
