"""What is mirrored, as values: columns from what we store, and digests."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headwater.adapter.shadow.objects import Column, Relation, Schema, digest


def test_columns_have_postgresqls_types() -> None:
    stored = pa.schema(
        [
            pa.field("a", pa.int32(), nullable=False),
            pa.field("n", pa.decimal128(12, 2)),
            pa.field("z", pa.decimal128(38, 9)),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("l", pa.list_(pa.int64())),
            pa.field("s", pa.struct([pa.field("x", pa.int32())])),
        ]
    )
    assert [(c.type, c.not_null) for c in map(Column.stored, stored)] == [
        ("integer", True),
        ("numeric(12,2)", False),
        ("numeric", False),
        ("timestamp with time zone", False),
        ("bigint[]", False),
        ("jsonb", False),
    ]


def test_digests_differ_where_objects_do() -> None:
    relation = Relation("public", "t", "table", (Column("a", "integer"),))
    others = [
        replace(relation, comment="x"),
        replace(relation, primary_key=("a",)),
        replace(relation, kind="view"),
        replace(relation, columns=(Column("a", "integer", not_null=True),)),
    ]
    assert len({digest(o) for o in (relation, *others)}) == 5
    assert digest(relation) == digest(replace(relation))
    assert digest(Schema("t")) != digest(Schema("t", ""))
