"""The tables of the benches that ask how cost follows size: facts, a tenth as many dims, bands.

    facts(id, dim, grp, x, f, name)   N rows; ten of each ``dim`` and ten of each ``grp``
    dims(id, region, w)               N / 10 rows, 50 regions
    bands(low, high, band)            100 rows that part the values of ``x``

A change of Δ updates replaces facts (another ``x`` and ``f``, sometimes another ``dim``), and for
one in fifty a dim (another region). Groups keep their size whatever N is, so an operator that reads
just the affected groups reads as much at any N.

The rows from which changes are made lie in mapped files beside the location: what a bench needs to
know is not memory of the process that steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from world import World

from headwater.testing.relation import Change, Relation, replaced

RANGE = 1_000_000
BANDS = 100


class Shop(World):
    """A world with these tables, of one size."""

    def __init__(
        self, folder: Path, session: Any, rows: int, *, merging_apart: bool = False
    ) -> None:
        self.rows = rows
        self._random = np.random.default_rng(rows)
        ids, dims = np.arange(rows), np.arange(rows // 10)
        facts = pa.table(
            {
                "id": ids,
                "dim": ids % dims.size,
                "grp": ids // 10,
                "x": self._random.integers(0, RANGE, rows),
                "f": self._random.random(rows),
                "name": _named("name", ids % 1_000_000),
            }
        )
        edges = np.arange(BANDS) * (RANGE // BANDS)
        tables = {
            "facts": facts,
            "dims": pa.table({"id": dims, "region": _named("region", dims % 50), "w": dims % 7}),
            "bands": pa.table(
                {
                    "low": edges,
                    "high": edges + RANGE // BANDS,
                    "band": _named("band", np.arange(BANDS)),
                }
            ),
        }
        super().__init__(folder, session, tables, merging_apart=merging_apart)
        self._relations = {
            name: Relation(name, _mapped(folder.parent / f"{folder.name}-{name}.arrow", table))
            for name, table in tables.items()
        }

    def replace(self, updates: int) -> int:
        """Replace so many rows that it is that many updates, at one time."""
        of_dims = max(1, updates // 100)
        return self.change([self._facts(updates // 2 - of_dims), self._dims(of_dims)])

    def tables(self) -> dict[str, pa.Table]:
        return {name: relation.rows() for name, relation in self._relations.items()}

    def _facts(self, count: int) -> Change:
        facts, random = self._relations["facts"], self._random
        picked = facts.pick(random, count)
        old = facts.take(picked)
        others = random.integers(0, self.rows // 10, picked.size)
        moved = random.random(picked.size) < 0.1
        values = {
            "x": random.integers(0, RANGE, picked.size),
            "f": random.random(picked.size),
            "dim": np.where(moved, others, old.column("dim").to_numpy()),
        }
        return facts.change(picked, [replaced(old, values)])

    def _dims(self, count: int) -> Change:
        dims = self._relations["dims"]
        picked = dims.pick(self._random, count)
        regions = _named("region", self._random.integers(0, 50, picked.size))
        return dims.change(picked, [replaced(dims.take(picked), {"region": regions})])


def _mapped(path: Path, table: pa.Table) -> pa.Table:
    """Return the same rows, in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _named(prefix: str, numbers: Any) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), " ")
