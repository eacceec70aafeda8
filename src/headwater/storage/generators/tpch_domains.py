"""What TPC-H says of its tables: columns, keys, and from which values rows are drawn.

Section 4.2 of the specification, as far as its 22 queries look at it. :data:`SPECIFIED` draws from
all values; :data:`NARROW` from those that the queries search for, so that they find something at
the smallest scales. Relied on by: ``tpch``, which makes rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

MONEY: Final = pa.decimal128(12, 2)
INT: Final = pa.int32()
KEY: Final = pa.int64()
TEXT: Final = pa.string()
DAY: Final = pa.date32()


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, type_) for name, type_ in columns.items()])


SCHEMAS: Final[dict[str, pa.Schema]] = {
    "region": _schema(r_regionkey=KEY, r_name=TEXT, r_comment=TEXT),
    "nation": _schema(n_nationkey=KEY, n_name=TEXT, n_regionkey=KEY, n_comment=TEXT),
    "supplier": _schema(
        s_suppkey=KEY,
        s_name=TEXT,
        s_address=TEXT,
        s_nationkey=KEY,
        s_phone=TEXT,
        s_acctbal=MONEY,
        s_comment=TEXT,
    ),
    "customer": _schema(
        c_custkey=KEY,
        c_name=TEXT,
        c_address=TEXT,
        c_nationkey=KEY,
        c_phone=TEXT,
        c_acctbal=MONEY,
        c_mktsegment=TEXT,
        c_comment=TEXT,
    ),
    "part": _schema(
        p_partkey=KEY,
        p_name=TEXT,
        p_mfgr=TEXT,
        p_brand=TEXT,
        p_type=TEXT,
        p_size=INT,
        p_container=TEXT,
        p_retailprice=MONEY,
        p_comment=TEXT,
    ),
    "partsupp": _schema(
        ps_partkey=KEY, ps_suppkey=KEY, ps_availqty=INT, ps_supplycost=MONEY, ps_comment=TEXT
    ),
    "orders": _schema(
        o_orderkey=KEY,
        o_custkey=KEY,
        o_orderstatus=TEXT,
        o_totalprice=MONEY,
        o_orderdate=DAY,
        o_orderpriority=TEXT,
        o_clerk=TEXT,
        o_shippriority=INT,
        o_comment=TEXT,
    ),
    "lineitem": _schema(
        l_orderkey=KEY,
        l_partkey=KEY,
        l_suppkey=KEY,
        l_linenumber=INT,
        l_quantity=MONEY,
        l_extendedprice=MONEY,
        l_discount=MONEY,
        l_tax=MONEY,
        l_returnflag=TEXT,
        l_linestatus=TEXT,
        l_shipdate=DAY,
        l_commitdate=DAY,
        l_receiptdate=DAY,
        l_shipinstruct=TEXT,
        l_shipmode=TEXT,
        l_comment=TEXT,
    ),
}
KEYS: Final[dict[str, tuple[str, ...]]] = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


REGIONS: Final = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS: Final = (
    *(("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4)),
    *(("ETHIOPIA", 0), ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2)),
    *(("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0)),
    *(("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3)),
    *(("SAUDI ARABIA", 4), ("VIETNAM", 2), ("RUSSIA", 3), ("UNITED KINGDOM", 3)),
    ("UNITED STATES", 1),
)
SEGMENTS: Final = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
PRIORITIES: Final = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
INSTRUCTIONS: Final = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
MODES: Final = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB", "AIR REG")
"""The specification's seven, and the spelling that its query 19 searches for."""
COLOURS: Final = _words(
    "almond antique aquamarine azure beige bisque black blanched blue blush brown burlywood "
    "burnished chartreuse chiffon chocolate coral cornflower cornsilk cream cyan dark deep dim "
    "dodger drab firebrick floral forest frosted gainsboro ghost goldenrod green grey honeydew hot "
    "indian ivory khaki lace lavender lawn lemon light lime linen magenta maroon medium metallic "
    "midnight mint misty moccasin navajo navy olive orange orchid pale papaya peach peru pink plum "
    "powder puff purple red rose rosy royal saddle salmon sandy seashell sienna sky slate smoke "
    "snow spring steel tan thistle tomato turquoise violet wheat white yellow"
)
WORDS: Final = _words(
    "furiously quickly carefully blithely slyly final ironic pending express regular bold even "
    "silent deposits accounts packages theodolites foxes ideas pinto beans instructions asymptotes "
    "sleep wake haggle nag boost detect integrate cajole among above across the about"
)


def _product(*syllables: str) -> tuple[str, ...]:
    found = [""]
    for choices in syllables:
        found = [f"{left} {right}".strip() for left in found for right in choices.split()]
    return tuple(found)


@dataclass(frozen=True)
class Domains:
    """From which values rows are drawn, where it matters to how much the queries find."""

    nations: tuple[int, ...] = tuple(range(25))
    brands: tuple[str, ...] = tuple(f"Brand#{m}{n}" for m in range(1, 6) for n in range(1, 6))
    types: tuple[str, ...] = _product(
        "STANDARD SMALL MEDIUM LARGE ECONOMY PROMO",
        "ANODIZED BURNISHED PLATED POLISHED BRUSHED",
        "TIN NICKEL BRASS STEEL COPPER",
    )
    sizes: tuple[int, ...] = tuple(range(1, 51))
    containers: tuple[str, ...] = _product(
        "SM LG MED JUMBO WRAP", "CASE BOX BAG JAR PKG PACK CAN DRUM"
    )
    colours: tuple[str, ...] = COLOURS
    quantity_max: int = 50
    special_requests: float = 0.01
    complaints: float = 0.0005
    first_day: str = "1992-01-01"
    last_day: str = "1998-08-02"
    available_max: int = 9999


SPECIFIED: Final = Domains()
NARROW: Final = Domains(
    nations=(2, 3, 6, 7, 8, 18, 20),
    brands=("Brand#12", "Brand#23", "Brand#34", "Brand#45"),
    types=("ECONOMY ANODIZED STEEL", "PROMO PLATED BRASS", "MEDIUM POLISHED TIN", "SMALL BRASS"),
    sizes=(3, 5, 9, 14, 15, 19),
    containers=("SM CASE", "SM BOX", "MED BAG", "MED BOX", "LG CASE", "LG PACK"),
    colours=("forest", "green", "red", "ivory", "navy", "plum"),
    quantity_max=80,
    special_requests=0.3,
    complaints=0.2,
    first_day="1993-06-01",
    last_day="1996-12-31",
    available_max=300,
)
