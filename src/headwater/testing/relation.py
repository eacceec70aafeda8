"""Relations that change, as the generators of test data see them: rows that are there, and changes.

A *change* of a relation is what goes and what comes, both as tables of its schema; an update of a
row is its old form gone and its new form come. A :class:`Relation` knows the rows that are there
now. It is made for large ones: the first rows stay as they came, sorted or not; a change costs as
much as it has rows.

Invariant: ``gone`` of every change was there before it, so no multiplicity is ever negative.
Kept by: :meth:`Relation.change`. Relied on by: ``tpch``, ``nexmark``, and by those who write it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.persist.evolution import updates_schema

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to a relation at one time."""

    relation: str
    gone: pa.Table
    come: pa.Table

    @property
    def rows(self) -> int:
        """How many updates it is."""
        return int(self.gone.num_rows + self.come.num_rows)

    def updates(self, time: int) -> pa.Table:
        """Return it as updates at a time, for a collection with the relation's columns."""
        return pa.concat_tables([as_updates(self.gone, time, -1), as_updates(self.come, time, 1)])


def as_updates(rows: pa.Table, time: int, diff: int) -> pa.Table:
    """Return rows with the same time and diff each."""
    system = [
        pa.chunked_array([np.full(rows.num_rows, time, np.int64)]),
        pa.chunked_array([np.full(rows.num_rows, diff, np.int64)]),
    ]
    return pa.table([*rows.columns, *system], schema=updates_schema(rows.schema))


class Relation:
    """The rows of a relation that are there now; each has a number that it keeps."""

    def __init__(self, name: str, rows: pa.Table) -> None:
        self.name = name
        self._first = rows.combine_chunks()
        self._later = rows.slice(0, 0)
        self._there = np.ones(rows.num_rows, bool)

    @property
    def count(self) -> int:
        """How many rows are there."""
        return int(self._there.sum())

    def rows(self) -> pa.Table:
        """Return the rows that are there."""
        return pa.concat_tables([self._first, self._later]).filter(pa.array(self._there))

    def pick(self, random: np.random.Generator, count: int) -> Indices:
        """Choose that many rows, all different (fewer if there are not so many)."""
        wanted = min(count, self.count)
        if wanted * 4 > self._there.size:
            there = np.flatnonzero(self._there)
            return np.sort(random.choice(there, wanted, replace=False))
        found = np.empty(0, np.int64)
        while found.size < wanted:
            more = random.integers(0, self._there.size, 2 * wanted)
            found = np.unique(np.concatenate([found, more[self._there[more]]]))
        return np.sort(random.choice(found, wanted, replace=False))

    def those(self, column: str, values: Any) -> Indices:
        """Return the rows with one of these values in a column by which the first rows are sorted.

        Sorted is what makes it cheap: a search for the first ones, a look at the few later ones.
        """
        wanted = np.unique(np.asarray(values))
        first = self._first.column(column).to_numpy()
        low, high = np.searchsorted(first, wanted), np.searchsorted(first, wanted, "right")
        lengths = high - low
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        later = np.flatnonzero(np.isin(self._later.column(column).to_numpy(), wanted))
        found = np.concatenate([np.repeat(low, lengths) + within, later + self._first.num_rows])
        there: Indices = found[self._there[found]].astype(np.int64)
        return there

    def take(self, rows: Indices) -> pa.Table:
        """Return some rows by their numbers."""
        border = self._first.num_rows
        parts = [
            self._first.take(pa.array(rows[rows < border])),
            self._later.take(pa.array(rows[rows >= border] - border)),
        ]
        return pa.concat_tables(parts).combine_chunks()

    def change(self, gone: Indices, come: Sequence[pa.Table] = ()) -> Change:
        """Remove rows by their numbers, add others, and return that as a change."""
        assert self._there[gone].all(), "only what is there can go"
        assert np.unique(gone).size == gone.size, "a row goes once"
        schema = self._first.schema
        added = pa.concat_tables([schema.empty_table(), *come])
        change = Change(self.name, self.take(gone), added)
        self._there[gone] = False
        self._there = np.concatenate([self._there, np.ones(added.num_rows, bool)])
        self._later = pa.concat_tables([self._later, added]).combine_chunks()
        return change


def replaced(rows: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """Return rows with some columns replaced, in the types they had."""
    for name, values in columns.items():
        position = rows.schema.get_field_index(name)
        field = rows.schema.field(position)
        array = values if isinstance(values, pa.ChunkedArray | pa.Array) else pa.array(values)
        rows = rows.set_column(position, field, array.cast(field.type))
    return rows


def chosen(values: Sequence[str], indices: Any) -> pa.Array:
    """Return the texts at these indices."""
    return pa.array(values, pa.string()).take(pa.array(np.asarray(indices), pa.int64()))


def decimals(unscaled: Any, type_: pa.Decimal128Type) -> pa.Array:
    """Return exact decimals from whole numbers of their smallest unit, vectorised.

    A decimal is a 128-bit number: the low word is ours, the high word repeats its sign.
    """
    low = np.asarray(unscaled, np.int64)
    words = np.empty((low.size, 2), np.int64)
    words[:, 0], words[:, 1] = low, low >> 63
    return pa.Array.from_buffers(type_, low.size, [None, pa.py_buffer(words.tobytes())])


def unscaled(column: Any, scale: int = 2) -> npt.NDArray[np.int64]:
    """Return the whole numbers of the smallest unit of exact decimals that fit 64 bits."""
    whole = pc.multiply(column, pa.scalar(10**scale, pa.int64()).cast(pa.decimal128(19, 0)))
    found: npt.NDArray[np.int64] = (
        whole.cast(pa.decimal128(38, 0)).cast(pa.int64()).to_numpy().copy()
    )
    return found


def numbered(prefix: str, numbers: Any, digits: int = 9) -> pa.Array:
    """Return texts such as ``Customer#000000042``."""
    text = pc.utf8_lpad(pa.array(np.asarray(numbers)).cast(pa.string()), digits, "0")
    return pc.binary_join_element_wise(prefix, text, "")
