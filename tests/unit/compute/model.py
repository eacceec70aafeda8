"""The model of the skeleton's view: random histories of two tables, and the query by force."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from headwater.compute.maintained import MaintainedView

Row = tuple[Any, ...]
Triple = tuple[dict[str, Any], int, int]

ORDERS = pa.schema(
    [
        pa.field("customer", pa.int32()),
        pa.field("region", pa.string()),
        pa.field("amount", pa.int64()),
    ]
)
CUSTOMERS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("tier", pa.float64()),
        pa.field("credit", pa.decimal128(12, 2)),
    ]
)
SQL = """
    SELECT o.region, c.tier, sum(o.amount) AS amount, sum(c.credit) AS credit,
           count(*) AS orders, count(o.amount) AS amounts
    FROM orders AS o JOIN customers AS c ON o.customer = c.id
    GROUP BY o.region, c.tier
"""
COLUMNS = ("region", "tier", "amount", "credit", "orders", "amounts")


def incremental(view: object) -> MaintainedView:
    """A view that was created, which must be of the kind that this is the model of."""
    assert isinstance(view, MaintainedView)
    return view


def _order(random: Random) -> Row:
    return (
        random.choice([1, 2, 3, None]),
        random.choice(["east", "west", None]),
        random.choice([1, 2**53 + 1, -(2**53) - 3, -7, None]),
    )


def _customer(random: Random) -> Row:
    credit = random.choice([Decimal("1.25"), Decimal("-0.01"), Decimal("9999999999.99"), None])
    return random.choice([1, 2, 3, None]), random.choice([0.0, -0.0, 1.5, None]), credit


@dataclass
class Table:
    """One input: what it holds now, and all that ever happened to it."""

    schema: pa.Schema
    make: Any
    held: Counter[Row] = field(default_factory=Counter)
    history: list[tuple[Row, int, int]] = field(default_factory=list)

    def change(self, random: Random, time: int) -> list[Triple]:
        """Insert, delete or replace some rows at ``time``."""
        changes: list[tuple[Row, int, int]] = []
        for _ in range(random.randint(0, 4)):
            present = sorted(self.held.elements(), key=repr)
            if present and random.random() < 0.45:
                gone = random.choice(present)
                changes.append((gone, time, -1))
                self.held[gone] -= 1
                if random.random() < 0.5:
                    continue
            come, times = self.make(random), random.randint(1, 2)
            changes.append((come, time, times))
            self.held[come] += times
        self.held += Counter()
        self.history += changes
        names = self.schema.names
        return [(dict(zip(names, row, strict=True)), t, diff) for row, t, diff in changes]

    def at(self, time: int) -> Counter[Row]:
        """The multiset at a time."""
        rows: Counter[Row] = Counter()
        for row, t, diff in self.history:
            if t <= time:
                rows[_bits(row)] += diff
        return +rows


def _bits(row: Row) -> Row:
    return tuple(value + 0.0 if isinstance(value, float) else value for value in row)


def orders() -> Table:
    return Table(ORDERS, _order)


def customers() -> Table:
    return Table(CUSTOMERS, _customer)


def query(left: Counter[Row], right: Counter[Row]) -> Counter[Row]:
    """The view, by the definition of join, group and sum."""
    groups: dict[Row, list[tuple[Any, Any, int]]] = defaultdict(list)
    for (customer, region, amount), many in left.items():
        for (number, tier, credit), often in right.items():
            if customer is not None and customer == number:
                groups[region, tier].append((amount, credit, many * often))
    result: Counter[Row] = Counter()
    for group, rows in groups.items():
        amounts = [(amount, n) for amount, _, n in rows if amount is not None]
        credited = [(credit, n) for _, credit, n in rows if credit is not None]
        result[
            (
                *group,
                sum(a * n for a, n in amounts) if amounts else None,
                sum((c * n for c, n in credited), Decimal(0)) if credited else None,
                sum(n for _, _, n in rows),
                sum(n for _, n in amounts),
            )
        ] += 1
    return result


def rows_of(table: pa.Table) -> Counter[Row]:
    """A snapshot with ``__diff``, as a multiset."""
    found: Counter[Row] = Counter()
    for row in table.to_pylist():
        diff = row.pop("__diff", 1)
        found[_bits(tuple(row.values()))] += diff
    return found
