"""Random rows of the relations that the query texts read; small domains, so that queries find some.

Every column may be NULL where its relation says so. The same seed gives the same rows.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

Make = Callable[[Random, int], Any]
MONEY = pa.decimal128(12, 2)
FOLDER = Path(__file__).parent


def queries(suite: str) -> dict[str, str]:
    """Return the texts of a suite by name: a folder of files, or one file of named texts."""
    if (FOLDER / suite).is_dir():
        files = sorted((FOLDER / suite).glob("*.sql"))
        return {path.stem: path.read_text("utf-8") for path in files}
    parts = re.split(
        r"^-- (\w+)\n", (FOLDER / f"{suite}.sql").read_text("utf-8"), flags=re.MULTILINE
    )
    return dict(zip(parts[1::2], (text.strip() for text in parts[2::2]), strict=True))


def _one_of(*values: Any) -> Make:
    return lambda random, _: random.choice(values)


def _number(low: int, high: int) -> Make:
    return lambda random, _: random.randint(low, high)


def _serial(random: Random, n: int) -> int:
    return n


def _money(low: int, high: int) -> Make:
    return lambda random, _: Decimal(random.randint(low * 100, high * 100)).scaleb(-2)


def _day(first: str, last: str) -> Make:
    start, end = dt.date.fromisoformat(first), dt.date.fromisoformat(last)
    return lambda random, _: start + dt.timedelta(random.randint(0, (end - start).days))


def _words(*words: str) -> Make:
    return lambda random, _: " ".join(random.choices(words, k=random.randint(1, 4)))


def _pair(first: tuple[str, ...], second: tuple[str, ...]) -> Make:
    return lambda random, _: f"{random.choice(first)} {random.choice(second)}"


NATIONS = ("FRANCE", "GERMANY", "BRAZIL", "CANADA", "SAUDI ARABIA", "CHINA", "INDIA")
REGIONS = ("EUROPE", "ASIA", "AMERICA")
COMMENT = _words("Customer", "Complaints", "special", "requests", "green", "quick")


def _phone(random: Random, n: int) -> str:
    return f"{random.choice((13, 31, 23, 29, 44))}-{random.randint(100, 999)}"


Columns = dict[str, tuple[pa.DataType, Make]]

TPCH: dict[str, tuple[int, Columns]] = {
    "region": (
        3,
        {"r_regionkey": (pa.int64(), _serial), "r_name": (pa.string(), lambda _, n: REGIONS[n])},
    ),
    "nation": (
        7,
        {
            "n_nationkey": (pa.int64(), _serial),
            "n_name": (pa.string(), lambda _, n: NATIONS[n]),
            "n_regionkey": (pa.int64(), lambda _, n: n % 3),
        },
    ),
    "supplier": (
        15,
        {
            "s_suppkey": (pa.int64(), _serial),
            "s_name": (pa.string(), lambda _, n: f"Supplier#{n}"),
            "s_address": (pa.string(), COMMENT),
            "s_nationkey": (pa.int64(), _number(0, 6)),
            "s_phone": (pa.string(), _phone),
            "s_acctbal": (MONEY, _money(-900, 9000)),
            "s_comment": (pa.string(), COMMENT),
        },
    ),
    "customer": (
        40,
        {
            "c_custkey": (pa.int64(), _serial),
            "c_name": (pa.string(), lambda _, n: f"Customer#{n}"),
            "c_address": (pa.string(), COMMENT),
            "c_nationkey": (pa.int64(), _number(0, 6)),
            "c_phone": (pa.string(), _phone),
            "c_acctbal": (MONEY, _money(-900, 9000)),
            "c_mktsegment": (pa.string(), _one_of("BUILDING", "MACHINERY")),
            "c_comment": (pa.string(), COMMENT),
        },
    ),
    "part": (
        30,
        {
            "p_partkey": (pa.int64(), _serial),
            "p_name": (pa.string(), _words("forest", "green", "red")),
            "p_mfgr": (pa.string(), _one_of("M#1", "M#2")),
            "p_brand": (pa.string(), _one_of("Brand#12", "Brand#23", "Brand#34", "Brand#45")),
            "p_type": (
                pa.string(),
                _one_of(
                    "ECONOMY ANODIZED STEEL", "PROMO BRASS", "MEDIUM POLISHED TIN", "LARGE BRASS"
                ),
            ),
            "p_size": (pa.int32(), _one_of(3, 9, 14, 15, 19, 5)),
            "p_container": (
                pa.string(),
                _pair(("SM", "MED", "LG"), ("CASE", "BOX", "PACK", "PKG", "BAG")),
            ),
            "p_retailprice": (MONEY, _money(1, 2000)),
            "p_comment": (pa.string(), COMMENT),
        },
    ),
    "partsupp": (
        120,
        {
            "ps_partkey": (pa.int64(), _number(0, 29)),
            "ps_suppkey": (pa.int64(), _number(0, 14)),
            "ps_availqty": (pa.int32(), _number(1, 60)),
            "ps_supplycost": (MONEY, _money(1, 20)),
            "ps_comment": (pa.string(), COMMENT),
        },
    ),
    "orders": (
        150,
        {
            "o_orderkey": (pa.int64(), _serial),
            "o_custkey": (pa.int64(), _number(0, 30)),
            "o_orderstatus": (pa.string(), _one_of("F", "O")),
            "o_totalprice": (MONEY, _money(1, 90000)),
            "o_orderdate": (pa.date32(), _day("1993-06-01", "1996-12-31")),
            "o_orderpriority": (pa.string(), _one_of("1-URGENT", "2-HIGH", "3-MEDIUM")),
            "o_clerk": (pa.string(), _one_of("Clerk#1", "Clerk#2")),
            "o_shippriority": (pa.int32(), _number(0, 1)),
            "o_comment": (pa.string(), COMMENT),
        },
    ),
    "lineitem": (
        600,
        {
            "l_orderkey": (pa.int64(), _number(0, 149)),
            "l_partkey": (pa.int64(), _number(0, 29)),
            "l_suppkey": (pa.int64(), _number(0, 14)),
            "l_linenumber": (pa.int32(), _number(1, 7)),
            "l_quantity": (MONEY, lambda random, _: Decimal(random.randint(1, 90))),
            "l_extendedprice": (MONEY, _money(900, 100_000)),
            "l_discount": (MONEY, lambda random, _: Decimal(random.randint(0, 10)).scaleb(-2)),
            "l_tax": (MONEY, lambda random, _: Decimal(random.randint(0, 8)).scaleb(-2)),
            "l_returnflag": (pa.string(), _one_of("R", "A", "N")),
            "l_linestatus": (pa.string(), _one_of("O", "F")),
            "l_shipdate": (pa.date32(), _day("1993-06-01", "1998-12-01")),
            "l_commitdate": (pa.date32(), _day("1993-06-01", "1996-12-01")),
            "l_receiptdate": (pa.date32(), _day("1993-06-01", "1996-12-01")),
            "l_shipinstruct": (pa.string(), _one_of("DELIVER IN PERSON", "NONE")),
            "l_shipmode": (pa.string(), _one_of("MAIL", "SHIP", "AIR", "AIR REG")),
            "l_comment": (pa.string(), COMMENT),
        },
    ),
}

TIMESTAMP = pa.timestamp("us", "UTC")
EPOCH = dt.datetime(2026, 11, 15, 7, 59, 30, tzinfo=dt.UTC)


def _moment(seconds: int) -> Make:
    return lambda random, _: EPOCH + dt.timedelta(milliseconds=random.randint(0, seconds * 20) * 50)


def _url(random: Random, n: int) -> str:
    path = "/".join(random.choices(("a", "b", "c"), k=random.randint(0, 4)))
    return f"https://host/{path}" + random.choice(("", "?x=1&channel_id=7"))


NEXMARK: dict[str, tuple[int, Columns]] = {
    "person": (
        30,
        {
            "id": (pa.int64(), _serial),
            "name": (pa.string(), _words("ann", "bob", "eve")),
            "emailAddress": (pa.string(), COMMENT),
            "creditCard": (pa.string(), COMMENT),
            "city": (pa.string(), _one_of("Boise", "Salem")),
            "state": (pa.string(), _one_of("OR", "ID", "CA", "NY")),
            "dateTime": (TIMESTAMP, _moment(60)),
            "extra": (pa.string(), COMMENT),
        },
    ),
    "auction": (
        40,
        {
            "id": (pa.int64(), _serial),
            "itemName": (pa.string(), COMMENT),
            "description": (pa.string(), COMMENT),
            "initialBid": (pa.int64(), _number(1, 100)),
            "reserve": (pa.int64(), _number(1, 100)),
            "dateTime": (TIMESTAMP, _moment(30)),
            "expires": (TIMESTAMP, _moment(120)),
            "seller": (pa.int64(), _number(0, 29)),
            "category": (pa.int64(), _number(9, 11)),
            "extra": (pa.string(), COMMENT),
        },
    ),
    "bid": (
        400,
        {
            "auction": (pa.int64(), _one_of(*range(40), 123, 246)),
            "bidder": (pa.int64(), _number(0, 29)),
            "price": (pa.int64(), lambda random, _: int(10 ** random.uniform(2, 8))),
            "channel": (pa.string(), _one_of("Apple", "Google", "Baidu", "other")),
            "url": (pa.string(), _url),
            "dateTime": (TIMESTAMP, _moment(90)),
            "extra": (pa.string(), COMMENT),
        },
    ),
    "side_input": (
        40,
        {"key": (pa.int64(), _serial), "value": (pa.string(), lambda _, n: f"v{n}")},
    ),
}


def _letters(random: Random, n: int) -> list[str | None]:
    return [random.choice(("x", "y", None)) for _ in range(random.randrange(3))]


EXTRA: dict[str, tuple[int, Columns]] = {
    "t": (
        50,
        {
            "a": (pa.int32(), _number(0, 9)),
            "b": (pa.int64(), _number(-3, 12)),
            "s": (pa.string(), _one_of("x", "y", "it's", "Q\\n", "")),
            "d": (MONEY, _money(-9, 9)),
            "f": (pa.float64(), _one_of(0.5, -1.25, 3.0, 1e3)),
            "day": (pa.date32(), _day("2024-02-26", "2024-03-03")),
            "ts": (TIMESTAMP, _moment(90)),
            "xs": (pa.list_(pa.string()), _letters),
            "o": (
                pa.struct([("p", pa.int32()), ("q", pa.string())]),
                lambda r, _: {"p": r.randint(0, 3), "q": "z"},
            ),
            "flag": (pa.bool_(), _one_of(True, False)),
        },
    ),
    "u": (
        30,
        {
            "a": (pa.int32(), _number(0, 12)),
            "c": (pa.int64(), _number(-2, 14)),
            "s": (pa.string(), _one_of("x", "y", "w")),
            "k": (pa.int32(), _serial),
        },
    ),
}
NULLABLE = {"t": 0.2, "u": 0.15}  # how often a column is NULL; a serial number never is

SUITES = {"tpch": TPCH, "nexmark": NEXMARK, "extra": EXTRA}


def schemas(suite: str) -> dict[str, pa.Schema]:
    """Return the columns of a suite's relations."""
    return {
        name: pa.schema([(column, type_) for column, (type_, _) in columns.items()])
        for name, (_, columns) in SUITES[suite].items()
    }


def tables(suite: str, seed: int) -> dict[str, pa.Table]:
    """Return random rows of a suite's relations."""
    random = Random(seed)
    found: dict[str, pa.Table] = {}
    for name, (rows, columns) in SUITES[suite].items():
        nulls = NULLABLE.get(name, 0.0)
        cells = {
            column: pa.array(
                [
                    None if make is not _serial and random.random() < nulls else make(random, n)
                    for n in range(rows)
                ],
                type_,
            )
            for column, (type_, make) in columns.items()
        }
        found[name] = pa.table(cells)
    return found
