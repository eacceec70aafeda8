"""Delivering into Iceberg, beside pyiceberg alone: as ``materialize.py``, whose measure it uses.

The raw client appends, and for changes it does what pyiceberg has for them: ``upsert`` by key. So
that the share says something also if that is slow, a second raw client reads the whole table,
replaces the rows in memory and overwrites it: the least that copy on write can cost where changes
are everywhere.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from endpoints import Place
from materialize import measure
from measure import SCHEMA, arguments, begin, scratch, show
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table


class Iceberg(Place):
    name, client = "iceberg", "pyiceberg append and upsert"

    def __init__(self, folder: Path) -> None:
        self.config = {
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": str(folder / "lake"),
        }
        self._catalog = SqlCatalog("default", **self.config)
        self._catalog.create_namespace_if_not_exists("raw")

    def _raw(self) -> Table:
        return self._catalog.load_table("raw.raw")

    def empty_raw(self) -> None:
        if self._catalog.table_exists("raw.raw"):
            self._catalog.drop_table("raw.raw")
        self._catalog.create_table("raw.raw", SCHEMA)

    def raw_load(self, rows: pa.Table) -> None:
        self._raw().append(rows)

    def raw_upsert(self, rows: pa.Table) -> None:
        self._raw().upsert(rows, join_cols=["k"])

    def read(self, table: str) -> tuple[int, int]:
        name = "raw.raw" if table == "raw" else f"default.{table}"
        amounts = self._catalog.load_table(name).scan(selected_fields=("amount",)).to_arrow()
        return amounts.num_rows, pc.sum(amounts["amount"]).as_py()


class Overwritten(Iceberg):
    client = "pyiceberg append and overwrite"

    def raw_upsert(self, rows: pa.Table) -> None:
        found = self._raw()
        before = found.scan().to_arrow()
        stays = pc.invert(pc.is_in(before["k"], value_set=rows["k"].combine_chunks()))
        found.overwrite(pa.concat_tables([before.filter(stays), rows.cast(before.schema)]))


def main() -> None:
    parser = arguments()
    parser.add_argument("--rows", type=int, help="how many rows the initial load has")
    parser.add_argument("--rounds", type=int, help="how many transactions follow")
    parser.add_argument("--whole", action="store_true", help="beside overwriting, not upsert")
    asked = parser.parse_args()
    rows = asked.rows or (200_000 if asked.quick else 1_000_000)
    rounds = asked.rounds or (4 if asked.quick else 10)
    begin("Materializations into Iceberg: share of the raw client")
    with scratch() as folder:
        place = Overwritten(folder) if asked.whole else Iceberg(folder)
        show(
            f"{rows:,} rows of two longs and a short string; thousands of rows/s",
            ["", "ours k/s", "raw k/s", "share", "ours CPU-s", "raw CPU-s", "share", "memory MiB"],
            list(measure(place, folder, rows, rounds)),
        )


if __name__ == "__main__":
    main()
