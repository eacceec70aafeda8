"""TPC-H-like data by numpy, and a stream of changes to it.

    stream = Refreshes(scale=0.01, seed=1)        # its relations as they are first
    stream.relations["orders"].rows()
    stream.batch(share=0.001)                     # [Change(relation, gone, come), …] at one time

Schemas, domains and correlations are those of the specification (section 4.2) as far as its 22
queries look at them: sparse order keys (8 of 32), customers without orders (every third), four
suppliers of a part by the specified formula, one to seven lines of an order with dates that follow
its own, flags and status that follow from dates, total prices that follow from lines, searched
words in comments at about the right rate. Texts are otherwise shorter and drawn from pools.

At the smallest scales most of the queries would find nothing; ``domains=NARROW`` draws from the
values that they search for.

A batch changes ``share`` of the lines: 40 % of that are inserted with new orders, 40 % are deleted
with their orders, 20 % are replaced, and so are some orders; ``dimensions`` (a share of its rows,
at least one) of each of customer, part, supplier and partsupp is replaced. Every batch keeps the
references of lines to orders; the same seed gives the same stream.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
    Domains,
)
from headwater.testing.relation import (
    Change,
    Relation,
    chosen,
    decimals,
    numbered,
    replaced,
    unscaled,
)

Ints = npt.NDArray[np.int64]

CURRENT_DAY: Final = np.datetime64("1995-06-17")
POOL: Final = 2_000
INSERTED, DELETED = 0.4, 0.4


def _days(days: Any) -> pa.Array:
    return pa.array(np.asarray(days).astype("datetime64[D]"))


class Refreshes:
    """The relations at first, and one batch of changes after the other."""

    def __init__(self, scale: float, seed: int, domains: Domains = SPECIFIED) -> None:
        self._random = np.random.default_rng(seed)
        self._domains = domains
        self._parts = max(20, int(200_000 * scale))
        self._suppliers = max(8, int(10_000 * scale))
        self._customers = max(15, int(150_000 * scale))
        self._orders = max(150, int(1_500_000 * scale))
        self._came = 0
        self._plain = self._pool()
        self._requests = self._pool("special", "requests", domains.special_requests)
        self._complained = self._pool("Customer", "Complaints", domains.complaints)
        orders, lines = self._with_lines(self._sparse(np.arange(self._orders)))
        rows = {
            "region": self._regions(),
            "nation": self._nations(),
            "supplier": self._supplier(),
            "customer": self._customer(),
            "part": self._part(),
            "partsupp": self._partsupp(),
            "orders": orders,
            "lineitem": lines,
        }
        self.relations = {name: Relation(name, table) for name, table in rows.items()}

    def tables(self) -> dict[str, pa.Table]:
        """Return all relations as they are now."""
        return {name: relation.rows() for name, relation in self.relations.items()}

    # ---- changes -------------------------------------------------------------------------------

    def batch(self, share: float = 0.001, dimensions: float = 0.0001) -> list[Change]:
        """Change that share of the lines, and that share of every dimension's rows."""
        random, relations = self._random, self.relations
        orders, lines = relations["orders"], relations["lineitem"]
        changed = max(8, int(lines.count * share))
        inserted, deleted = (max(1, round(changed * part / 4)) for part in (INSERTED, DELETED))
        touched = max(1, deleted // 4)
        picked = orders.pick(random, deleted + touched)
        gone = random.permutation(picked)[:deleted]
        kept = np.setdiff1d(picked, gone)
        keys = orders.take(gone).column("o_orderkey").to_numpy()
        lines_gone = lines.those("l_orderkey", keys)
        lines_kept = np.setdiff1d(lines.pick(random, max(1, changed // 5)), lines_gone)
        new_orders, new_lines = self._with_lines(self._new_keys(inserted))
        changes = [
            orders.change(
                np.concatenate([gone, kept]), [new_orders, self._order_again(orders.take(kept))]
            ),
            lines.change(
                np.concatenate([lines_gone, lines_kept]),
                [new_lines, self._line_again(lines.take(lines_kept))],
            ),
        ]
        again = {
            "customer": self._customer_again,
            "part": self._part_again,
            "supplier": self._supplier_again,
            "partsupp": self._partsupp_again,
        }
        for name, change in again.items() if dimensions else ():
            relation = relations[name]
            some = relation.pick(random, max(1, int(relation.count * dimensions)))
            changes.append(relation.change(some, [change(relation.take(some))]))
        return changes

    def _new_keys(self, count: int) -> Ints:
        """Return keys in the gaps between those that were there at first."""
        numbers = np.arange(self._came, self._came + count)
        self._came += count
        lap, position = numbers // self._orders, numbers % self._orders
        return self._sparse(position) + 8 * (1 + lap % 3) + 32 * self._orders * (lap // 3)

    def _order_again(self, rows: pa.Table) -> pa.Table:
        some = rows.num_rows
        change = {
            "o_orderpriority": self._one_of(PRIORITIES, some),
            "o_custkey": self._ordering_customers(some),
            "o_comment": self._requests.take(self._indices(POOL, some)),
        }
        return replaced(rows, change)

    def _line_again(self, rows: pa.Table) -> pa.Table:
        some = rows.num_rows
        ship = rows.column("l_shipdate").to_numpy() + self._between(-3, 4, some)
        unit = unscaled(rows.column("l_extendedprice")) * 100 // unscaled(rows.column("l_quantity"))
        quantity = self._between(1, self._domains.quantity_max, some)
        change = {
            "l_quantity": decimals(quantity * 100, MONEY),
            "l_extendedprice": decimals(quantity * unit, MONEY),
            "l_discount": decimals(self._between(0, 10, some), MONEY),
            **self._shipped(ship, rows.column("l_commitdate").to_numpy()),
        }
        return replaced(rows, change)

    def _customer_again(self, rows: pa.Table) -> pa.Table:
        some = rows.num_rows
        change = {
            "c_acctbal": decimals(self._between(-99_999, 999_999, some), MONEY),
            "c_mktsegment": self._one_of(SEGMENTS, some),
            "c_address": self._plain.take(self._indices(POOL, some)),
        }
        return replaced(rows, change)

    def _part_again(self, rows: pa.Table) -> pa.Table:
        some, domains = rows.num_rows, self._domains
        change = {
            "p_size": np.asarray(domains.sizes)[self._indices(len(domains.sizes), some)],
            "p_container": self._one_of(domains.containers, some),
            "p_type": self._one_of(domains.types, some),
            "p_name": self._names(some),
        }
        return replaced(rows, change)

    def _supplier_again(self, rows: pa.Table) -> pa.Table:
        some = rows.num_rows
        nations = self._of_nations(some)
        change = {
            "s_nationkey": nations,
            "s_phone": self._phones(nations),
            "s_acctbal": decimals(self._between(-99_999, 999_999, some), MONEY),
            "s_comment": self._complained.take(self._indices(POOL, some)),
        }
        return replaced(rows, change)

    def _partsupp_again(self, rows: pa.Table) -> pa.Table:
        some = rows.num_rows
        change = {
            "ps_availqty": self._between(1, self._domains.available_max, some),
            "ps_supplycost": decimals(self._between(100, 100_000, some), MONEY),
        }
        return replaced(rows, change)

    # ---- rows ----------------------------------------------------------------------------------

    def _regions(self) -> pa.Table:
        comments = self._plain.take(self._indices(POOL, 5))
        return pa.table([np.arange(5), list(REGIONS), comments], schema=SCHEMAS["region"])

    def _nations(self) -> pa.Table:
        names, regions = zip(*NATIONS, strict=True)
        comments = self._plain.take(self._indices(POOL, 25))
        columns = [np.arange(25), list(names), list(regions), comments]
        return pa.table(columns, schema=SCHEMAS["nation"])

    def _supplier(self) -> pa.Table:
        keys = np.arange(1, self._suppliers + 1)
        nations = self._of_nations(keys.size)
        columns = [
            keys,
            numbered("Supplier#", keys),
            self._plain.take(self._indices(POOL, keys.size)),
            nations,
            self._phones(nations),
            decimals(self._between(-99_999, 999_999, keys.size), MONEY),
            self._complained.take(self._indices(POOL, keys.size)),
        ]
        return pa.table(columns, schema=SCHEMAS["supplier"])

    def _customer(self) -> pa.Table:
        keys = np.arange(1, self._customers + 1)
        nations = self._of_nations(keys.size)
        columns = [
            keys,
            numbered("Customer#", keys),
            self._plain.take(self._indices(POOL, keys.size)),
            nations,
            self._phones(nations),
            decimals(self._between(-99_999, 999_999, keys.size), MONEY),
            self._one_of(SEGMENTS, keys.size),
            self._plain.take(self._indices(POOL, keys.size)),
        ]
        return pa.table(columns, schema=SCHEMAS["customer"])

    def _part(self) -> pa.Table:
        domains = self._domains
        keys = np.arange(1, self._parts + 1)
        brands = self._indices(len(domains.brands), keys.size)
        makers = [f"Manufacturer#{brand[6]}" for brand in domains.brands]
        columns = [
            keys,
            self._names(keys.size),
            chosen(makers, brands),
            chosen(domains.brands, brands),
            self._one_of(domains.types, keys.size),
            np.asarray(domains.sizes)[self._indices(len(domains.sizes), keys.size)],
            self._one_of(domains.containers, keys.size),
            decimals(_retail_price(keys), MONEY),
            self._plain.take(self._indices(POOL, keys.size)),
        ]
        return pa.table(columns, schema=SCHEMAS["part"])

    def _partsupp(self) -> pa.Table:
        parts = np.repeat(np.arange(1, self._parts + 1), 4)
        numbers = np.tile(np.arange(4), self._parts)
        columns = [
            parts,
            self._supplier_of(parts, numbers),
            self._between(1, self._domains.available_max, parts.size),
            decimals(self._between(100, 100_000, parts.size), MONEY),
            self._plain.take(self._indices(POOL, parts.size)),
        ]
        return pa.table(columns, schema=SCHEMAS["partsupp"])

    def _with_lines(self, keys: Ints) -> tuple[pa.Table, pa.Table]:
        """Return orders with these keys, and their lines."""
        domains, some = self._domains, keys.size
        first, last = np.datetime64(domains.first_day), np.datetime64(domains.last_day)
        days = first + self._between(0, int((last - first).astype(int)), some)
        lengths = self._between(1, 7, some)
        order = np.repeat(np.arange(some), lengths)
        many = order.size
        numbers = np.arange(many) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
        parts = self._between(1, self._parts, many)
        quantity = self._between(1, domains.quantity_max, many)
        price = quantity * _retail_price(parts)
        discount, tax = self._between(0, 10, many), self._between(0, 8, many)
        ship = days[order] + self._between(1, 121, many)
        shipped = self._shipped(ship, days[order] + self._between(30, 90, many))
        lines = {
            "l_orderkey": keys[order],
            "l_partkey": parts,
            "l_suppkey": self._supplier_of(parts, self._between(0, 3, many)),
            "l_linenumber": numbers,
            "l_quantity": decimals(quantity * 100, MONEY),
            "l_extendedprice": decimals(price, MONEY),
            "l_discount": decimals(discount, MONEY),
            "l_tax": decimals(tax, MONEY),
            **shipped,
            "l_shipinstruct": self._one_of(INSTRUCTIONS, many),
            "l_shipmode": self._one_of(MODES, many),
            "l_comment": self._plain.take(self._indices(POOL, many)),
        }
        charged = price * (100 - discount) * (100 + tax) // 10_000
        starts = np.cumsum(lengths) - lengths
        still_open = np.add.reduceat(ship > CURRENT_DAY, starts)
        status = np.where(still_open == lengths, 1, np.where(still_open == 0, 0, 2))
        clerks = max(1, self._orders // 1_500)
        orders = [
            keys,
            self._ordering_customers(some),
            chosen(("F", "O", "P"), status),
            decimals(np.add.reduceat(charged, starts), MONEY),
            _days(days),
            self._one_of(PRIORITIES, some),
            numbered("Clerk#", self._between(1, clerks, some)),
            np.zeros(some, np.int32),
            self._requests.take(self._indices(POOL, some)),
        ]
        ordered = [lines[name] for name in SCHEMAS["lineitem"].names]
        return (
            pa.table(orders, schema=SCHEMAS["orders"]),
            pa.table(ordered, schema=SCHEMAS["lineitem"]),
        )

    def _shipped(self, ship: Any, commit: Any) -> dict[str, Any]:
        """Return what follows from the day on which a line leaves."""
        receipt = ship + self._between(1, 30, ship.size)
        flags = np.where(receipt <= CURRENT_DAY, self._indices(2, ship.size), 2)
        return {
            "l_returnflag": chosen(("R", "A", "N"), flags),
            "l_linestatus": chosen(("F", "O"), (ship > CURRENT_DAY).astype(np.int64)),
            "l_shipdate": _days(ship),
            "l_commitdate": _days(commit),
            "l_receiptdate": _days(receipt),
        }

    # ---- values --------------------------------------------------------------------------------

    def _indices(self, below: int, count: int) -> Ints:
        return self._random.integers(0, below, count)

    def _between(self, low: int, high: int, count: int) -> Ints:
        return self._random.integers(low, high + 1, count)

    def _one_of(self, values: tuple[str, ...], count: int) -> pa.Array:
        return chosen(values, self._indices(len(values), count))

    def _of_nations(self, count: int) -> Ints:
        nations = self._domains.nations
        return np.asarray(nations)[self._indices(len(nations), count)]

    def _ordering_customers(self, count: int) -> Ints:
        """Return customers; every third never orders."""
        drawn = self._between(1, self._customers, count)
        return np.where(drawn % 3 == 0, drawn - 1, drawn)

    def _names(self, count: int) -> pa.Array:
        colours = self._domains.colours
        five = np.argsort(self._random.random((count, len(colours))), axis=1)[:, :5]
        return pc.binary_join_element_wise(*(chosen(colours, five[:, n]) for n in range(5)), " ")

    def _phones(self, nations: Ints) -> pa.Array:
        some = nations.size
        parts = [nations + 10, self._between(100, 999, some), self._between(100, 999, some)]
        texts = [pa.array(part).cast(pa.string()) for part in parts]
        return pc.binary_join_element_wise(
            *texts, pa.array(self._between(1_000, 9_999, some)).cast(pa.string()), "-"
        )

    def _pool(self, first: str = "", second: str = "", share: float = 0.0) -> pa.Array:
        """Return sentences, a share of them with two words in this order, others between them."""
        words = np.asarray(WORDS)[self._indices(len(WORDS), POOL * 6)].reshape(POOL, 6)
        lengths = self._between(2, 6, POOL)
        with_both = set(range(max(1, int(POOL * share)) if share else 0))
        texts = [" ".join(row[:length]) for row, length in zip(words, lengths, strict=True)]
        for number in with_both:
            head, _, tail = texts[number].partition(" ")
            texts[number] = f"{head} {first} {tail} {second}"
        return pa.array(texts, pa.string())

    def _sparse(self, numbers: Ints) -> Ints:
        return numbers // 8 * 32 + numbers % 8 + 1

    def _supplier_of(self, parts: Ints, number: Ints) -> Ints:
        """Return one of the four suppliers of a part, as specified.

        With few suppliers the specified stride would meet the same one again: it is bounded.
        """
        many = self._suppliers
        stride = many // 4 + (parts - 1) // many % max(1, many // 12)
        return (parts + number * stride) % many + 1


def _retail_price(parts: Ints) -> Ints:
    return 90_000 + parts // 10 % 20_001 + 100 * (parts % 1_000)
