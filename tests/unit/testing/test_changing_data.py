"""The generated relations hold what they promise, and the comparison with DuckDB can fail."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.storage.generators.tpch_domains import KEYS, NARROW, SCHEMAS, SPECIFIED, Domains
from headwater.testing.duck import Duck, difference, translated
from headwater.testing.nexmark import Auctions
from headwater.testing.relation import Change, Relation, decimals, unscaled
from headwater.testing.tpch import Refreshes

SCALE = 0.001


def _after(tables: dict[str, pa.Table], changes: list[Change]) -> dict[str, pa.Table]:
    """Apply changes by force: what goes must be there."""
    found = dict(tables)
    for change in changes:
        rows = [tuple(row.values()) for row in found[change.relation].to_pylist()]
        for row in change.gone.to_pylist():
            rows.remove(tuple(row.values()))
        schema = found[change.relation].schema
        kept = [dict(zip(schema.names, row, strict=True)) for row in rows]
        found[change.relation] = pa.concat_tables([pa.Table.from_pylist(kept, schema), change.come])
    return found


def _same(left: pa.Table, right: pa.Table) -> bool:
    names = [(name, "ascending") for name in left.column_names]
    return bool(left.sort_by(names).equals(right.sort_by(names)))


@pytest.mark.parametrize("domains", [SPECIFIED, NARROW])
def test_tpch_keeps_its_keys_and_references(domains: Domains) -> None:
    stream = Refreshes(SCALE, 7, domains)
    for number in range(2):
        tables = stream.tables()
        for name, columns in KEYS.items():
            assert tables[name].schema == SCHEMAS[name]
            assert sum(column.null_count for column in tables[name].columns) == 0
            groups = tables[name].group_by(list(columns)).aggregate([])
            assert groups.num_rows == tables[name].num_rows, f"{columns} are the key"
        for child, key, parent, of in (
            ("lineitem", ["l_orderkey"], "orders", ["o_orderkey"]),
            ("lineitem", ["l_partkey", "l_suppkey"], "partsupp", ["ps_partkey", "ps_suppkey"]),
            ("orders", ["o_custkey"], "customer", ["c_custkey"]),
            ("partsupp", ["ps_suppkey"], "supplier", ["s_suppkey"]),
        ):
            lost = (
                tables[child]
                .select(key)
                .join(tables[parent].select(of), key, of, join_type="left anti")
            )
            assert lost.num_rows == 0, f"{child} refers to {parent}, batch {number}"
        lines = tables["lineitem"].group_by("l_orderkey").aggregate([("l_linenumber", "count")])
        assert lines.num_rows == tables["orders"].num_rows
        assert set(pc.unique(lines.column(1)).to_pylist()) <= set(range(1, 8))
        changes = stream.batch(0.05, 0.02)
        assert {change.relation for change in changes} == set(KEYS) - {"nation", "region"}
        after = _after(tables, changes)
        assert all(_same(rows, after[name]) for name, rows in stream.tables().items())


def test_a_batch_has_the_size_that_was_asked_for() -> None:
    stream = Refreshes(0.02, 3)
    lines = stream.relations["lineitem"].count
    change = next(c for c in stream.batch(0.01, 0) if c.relation == "lineitem")
    assert 0.8 * lines * 0.01 < change.rows < 1.6 * lines * 0.01


def test_the_same_seed_gives_the_same_stream() -> None:
    for one, other in (
        (Refreshes(SCALE, 5), Refreshes(SCALE, 5)),
        (Auctions(5), Auctions(5)),
    ):
        for stream in (one, other):
            for _ in range(2):
                stream.batch(0.05) if isinstance(stream, Refreshes) else stream.batch(300)
        assert one.tables() == other.tables()


def test_nexmark_changes_what_is_there() -> None:
    stream = Auctions(2, churn=0.3)
    for _ in range(4):
        before = stream.tables()
        changes = stream.batch(200)
        after = _after(before, changes)
        assert all(_same(rows, after[name]) for name, rows in stream.tables().items())
    gone = {change.relation: change.gone.num_rows for change in changes}
    assert min(gone["person"], gone["auction"], gone["bid"]) > 0
    assert stream.relations["bid"].count > 500


def test_a_relation_finds_rows_by_a_sorted_column_and_by_chance() -> None:
    relation = Relation("r", pa.table({"k": [1, 1, 2, 5, 5, 5]}))
    relation.change(np.array([3]), [pa.table({"k": [5, 9]})])
    assert relation.those("k", [5, 7, 9]).tolist() == [4, 5, 6, 7]
    assert relation.rows().column("k").to_pylist() == [1, 1, 2, 5, 5, 5, 9]
    random = np.random.default_rng(1)
    assert relation.pick(random, 99).tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert 3 not in relation.pick(random, 1)
    with pytest.raises(AssertionError, match="only what is there"):
        relation.change(np.array([3]))


def test_decimals_by_words() -> None:
    type_ = pa.decimal128(12, 2)
    array = decimals([-1, 0, 123_456], type_)
    assert array.to_pylist() == [Decimal("-0.01"), Decimal("0.00"), Decimal("1234.56")]
    assert unscaled(array).tolist() == [-1, 0, 123_456]


def _view(rows: list[tuple[int | None, Decimal, int]]) -> pa.Table:
    schema = pa.schema([("k", pa.int64()), ("x", pa.decimal128(10, 2)), ("__diff", pa.int64())])
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


def test_a_difference_is_found_whatever_it_is() -> None:
    one, two = Decimal("1.00"), Decimal("2.00")
    rows: list[tuple[int | None, Decimal, int]] = [(1, one, 2), (None, two, 1)]
    exact = pa.table({"k": [None, 1, 1], "x": [two, one, one]})
    assert difference(_view(rows), exact) is None
    assert "not 1" in (difference(_view(rows), exact.slice(0, 1)) or "")
    wrongs: tuple[list[tuple[int | None, Decimal, int]], ...] = (
        [(1, one, 1), (None, two, 1)],
        [(1, one, 2), (2, two, 1)],
        [(1, one, 1), (1, two, 1), (None, two, 1)],
        [],
    )
    for wrong in wrongs:
        assert difference(_view(wrong), exact) is not None
    # What DuckDB has as a double may differ in the last digit, and no more.
    double = pa.table({"k": [None, 1, 1], "x": [2.004, 1.0, 1.0]})
    assert difference(_view(rows), double) is None
    far = pa.table({"k": [None, 1, 1], "x": [2.02, 1.0, 1.0]})
    assert "x is 2.0, not 2.02" in (difference(_view(rows), far) or "")
    unfit = pa.table({"k": [None, 1, 1], "x": [two, one, Decimal("1.001")]})
    assert "does not fit" in (difference(_view(rows), unfit) or "")


def test_ties_are_broken_by_the_row() -> None:
    table = pa.table({"a": [1, 1, 1, None], "b": ["z", "y", "x", "w"]})
    duck = Duck({"t": table})
    top = duck.answer("SELECT b, a FROM t ORDER BY a DESC LIMIT 1")
    assert top.to_pylist() == [{"b": "x", "a": 1}]
    places = duck.answer("SELECT b, row_number() OVER (ORDER BY a) AS n FROM t")
    assert dict(zip(*places.to_pydict().values(), strict=True)) == {"w": 1, "x": 2, "y": 3, "z": 4}
    duck.close()
    assert "DECIMAL(18, 6)" in translated("SELECT 1 FROM t WHERE a < (SELECT 2 * avg(a) FROM t)")
