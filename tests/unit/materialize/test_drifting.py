"""A sum at an endpoint that keeps what failed attempts told it: it may drift, and never stalls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from headwater.base.ids import GlobalId
from headwater.materialize.changes import NotUnique
from headwater.materialize.definition import ROWS, Binding
from headwater.materialize.documents import to_documents
from headwater.materialize.key_range import KeyRange
from headwater.materialize.reduced import FewerThanNone, Reducing
from headwater.materialize.reduction.value import Json
from headwater.materialize.tuples import pack
from headwater.persist.evolution import DIFF, TIME

INTEGER, TEXT = pa.int64(), pa.string()
UPDATES = pa.schema([("k", TEXT), ("n", INTEGER), ("v", TEXT), (TIME, INTEGER), (DIFF, INTEGER)])
DELIVERED = pa.schema([("k", TEXT), ("n", INTEGER), ("v", TEXT), (ROWS, INTEGER)])
KEY = pack(("a",))
SUM = (("n", "sum"),)
MIXED = (("n", "sum"), ("v", "lastWriteWins"))

Stored = list[tuple[Mapping[str, Json], bool, bool]]


def _stored(
    reduce: tuple[tuple[str, str], ...],
    changes: Sequence[tuple[int, str, int]],
    there: Mapping[str, Json] | None,
    *,
    drifts: bool,
) -> Stored:
    """Return what is stored of the key: its row, whether it exists, and whether it goes."""
    columns = ["k", *dict(reduce), ROWS]
    delivered = pa.schema([DELIVERED.field(name) for name in columns])
    reducing = Reducing(0, Binding("c", GlobalId(1), "t", ("k",), reduce=reduce), delivered)
    rows = [("a", n, v, 5, diff) for n, v, diff in changes]
    updates = pa.Table.from_pylist(
        [dict(zip(UPDATES.names, row, strict=True)) for row in rows], UPDATES
    )
    documents = reducing.documents(reducing.ordered(updates, 6, KeyRange.full()))
    found = reducing.stores(documents, {} if there is None else {KEY: there}, drifts=drifts)
    flags = zip(found.exists.to_pylist(), found.delete.to_pylist(), strict=True)
    return [(row, *each) for row, each in zip(to_documents(found.rows), flags, strict=True)]


def test_a_deletion_that_is_repeated_deletes_nothing() -> None:
    gone = [(7, "x", -1)]
    with pytest.raises(FewerThanNone):
        _stored(SUM, gone, None, drifts=False)
    assert _stored(SUM, gone, None, drifts=True) == []


def test_a_row_whose_rows_are_said_to_be_fewer_than_none_goes() -> None:
    there = {"k": "a", "n": 7, ROWS: 1}
    ((row, exists, goes),) = _stored(SUM, [(3, "x", -1), (4, "x", -1)], there, drifts=True)
    assert (row["n"], row[ROWS], exists, goes) == (0, 0, True, True)


def test_an_insertion_that_is_repeated_adds_again_and_its_key_has_one_row() -> None:
    there = {"k": "a", "n": 7, "v": "x", ROWS: 1}
    came = [(7, "x", 1)]
    with pytest.raises(NotUnique):
        _stored(MIXED, came, there, drifts=False)
    ((row, exists, goes),) = _stored(MIXED, came, there, drifts=True)
    assert (row["n"], row["v"], row[ROWS], exists, goes) == (14, "x", 1, True, False)
    ((row, *_),) = _stored(SUM, came, {"k": "a", "n": 7, ROWS: 1}, drifts=True)
    assert row[ROWS] == 2  # Where a key may have several there is nothing to hold it against.


def test_two_rows_of_a_key_are_refused_all_the_same() -> None:
    for drifts in (False, True):
        with pytest.raises(NotUnique):
            _stored(MIXED, [(1, "x", 1), (2, "y", 1)], None, drifts=drifts)
