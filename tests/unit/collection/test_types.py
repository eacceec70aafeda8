"""The table of types: every world's name leads back to the same type, and the rest is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from headwater.adapter.sql import types as adapter
from headwater.collection.meaning import NotJson, canonical_json
from headwater.collection.schema import Column, arrow_schema, columns
from headwater.collection.type_table import SCALARS
from headwater.collection.types import (
    NUMERIC_BARE,
    SqlType,
    UnsupportedType,
    array,
    as_text_form,
    by_arrow,
    by_postgres,
    by_spark,
    map_of,
    numeric,
    scalar,
    struct,
)
from headwater.persist import evolution

VECTORS = Path(__file__).parents[2] / "formats" / "types_v1.json"

plain = st.sampled_from([line.name for line in SCALARS if line.name != "numeric"]).map(scalar)
numerics = st.integers(1, 38).flatmap(
    lambda precision: st.integers(0, precision).map(lambda scale: numeric(precision, scale))
)
scalars = plain | numerics
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)


def _nested(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[SqlType]:
    fields = st.lists(st.tuples(names, inner), min_size=1, max_size=3, unique_by=lambda f: f[0])
    return st.one_of(
        inner.map(array),
        st.tuples(scalars.filter(lambda key: key.name != "void"), inner).map(
            lambda pair: map_of(*pair)
        ),
        fields.map(lambda found: struct(*found)),
    )


types = st.recursive(scalars, _nested, max_leaves=4)


@given(types)
def test_arrow_leads_back(type_: SqlType) -> None:
    assert by_arrow(type_.arrow) == as_text_form(type_)


@given(types)
def test_spark_leads_back(type_: SqlType) -> None:
    assert by_spark(type_.spark) == as_text_form(type_)


@given(scalars, st.integers(0, 2))
def test_postgres_leads_back(type_: SqlType, dimensions: int) -> None:
    expected = {"tinyint": scalar("smallint"), "void": scalar("text")}.get(type_.name, type_)
    for _ in range(dimensions):
        type_, expected = array(type_), array(expected)
    assert by_postgres(type_.postgres) == expected


typed_columns = st.tuples(names, types, st.booleans()).map(
    lambda found: Column(found[0], found[1], found[2] or found[1] == scalar("void"))
)


@given(st.lists(typed_columns, max_size=4, unique_by=lambda column: column.name))
def test_a_stored_schema_keeps_its_columns(found: list[Column]) -> None:
    """Also jsonb and uuid, which Arrow cannot tell from text."""
    wanted = tuple(found)
    stored = evolution.from_bytes(evolution.to_bytes(arrow_schema(wanted)))
    assert columns(stored) == wanted


def test_spark_can_read_the_names_of_parts() -> None:
    """A name of digits, or of letters that are not ASCII, is no name to Spark unless quoted."""
    text = "struct<a_1:int,`1`:int,`1a`:int,`größe`:int,`a b`:int>"
    assert by_spark(text).spark == text


def test_metadata_that_does_not_fit_is_not_believed() -> None:
    (field,) = arrow_schema([Column("j", scalar("jsonb"))])
    assert columns(pa.schema([field.with_type(pa.int32())])) == (Column("j", scalar("integer")),)
    assert columns(pa.schema([field])) == (Column("j", scalar("jsonb")),)


def test_void_is_no_column_that_must_have_values() -> None:
    with pytest.raises(UnsupportedType, match="give column 'n' a type"):
        Column("n", scalar("void"), nullable=False)


def _line(name: str, args: list[int]) -> dict[str, object]:
    type_ = by_postgres(name, args)
    return {
        "postgres": [name, args],
        "type": str(type_),
        "oid": type_.oid,
        "spark": type_.spark,
        "arrow": str(type_.arrow),
    }


def test_the_vectors() -> None:
    """Stored schemas depend on these lines: an existing one never changes."""
    stored = json.loads(VECTORS.read_text())
    lines = [_line(*line["postgres"]) for line in stored["vectors"]]
    if os.environ.get("REWRITE") == "1":
        body = ",\n".join("    " + json.dumps(line) for line in lines)
        VECTORS.write_text(
            f'{{\n  "format": "types",\n  "version": 1,\n  "vectors": [\n{body}\n  ]\n}}\n'
        )
    assert lines == stored["vectors"]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("varchar", (10,)),
        ("char", (3,)),
        ("character", ()),
        ("json", ()),
        ("money", ()),
        ("timetz", ()),
        ("time with time zone", ()),
        ("timestamp", (3,)),
        ("numeric", (39, 2)),
        ("numeric", (5, 6)),
        ("numeric", (5, -1)),
        ("numeric", (1, 1, 1)),
        ("float", (54,)),
        ("float", (0,)),
        ("record", ()),
        ("geometry", ()),
        ("integer[3]", ()),
        ("", ()),
    ],
)
def test_what_postgres_has_and_we_have_not(name: str, args: tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedType, match=r"use|is between|write|has p|name the|supported are"):
        by_postgres(name, args)


@pytest.mark.parametrize(
    "text",
    [
        "varchar(10)",
        "char(2)",
        "variant",
        "interval",
        "interval year to month",
        "interval month",
        "string collate UTF8_LCASE",
        "decimal(39,0)",
        "array<int",
        "map<int>",
        "map<void,int>",
        "map<map<int,int>,int>",
        "struct<a>",
        "struct<a:int,a:int>",
        "int int",
        "geography",
        "int(4)",
        "time(3)",
        "",
    ],
)
def test_what_spark_has_and_we_have_not(text: str) -> None:
    with pytest.raises(UnsupportedType):
        by_spark(text)


@pytest.mark.parametrize(
    "type_",
    [
        pa.uint8(),
        pa.uint64(),
        pa.float16(),
        pa.timestamp("ns"),
        pa.duration("ns"),
        pa.month_day_nano_interval(),
        pa.decimal256(50, 2),
        pa.decimal128(3, -2),
        pa.list_(pa.uint16()),
    ],
)
def test_what_arrow_has_and_we_have_not(type_: pa.DataType) -> None:
    with pytest.raises(UnsupportedType):
        by_arrow(type_)


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        (pa.large_string(), "text"),
        (pa.string_view(), "text"),
        (pa.dictionary(pa.int8(), pa.string()), "text"),
        (pa.large_binary(), "bytea"),
        (pa.binary(16), "bytea"),
        (pa.date64(), "date"),
        (pa.timestamp("s"), "timestamp"),
        (pa.timestamp("us", "Europe/Berlin"), "timestamptz"),
        (pa.time64("us"), "time"),
    ],
)
def test_other_arrow_types_whose_values_all_fit(type_: pa.DataType, name: str) -> None:
    assert by_arrow(type_) == scalar(name)


def test_other_spellings_of_spark() -> None:
    assert by_spark("DECIMAL") == numeric(10, 0)
    assert by_spark("Interval Hour To Second") == scalar("interval")
    assert by_spark(" string COLLATE UTF8_BINARY ") == scalar("text")
    assert by_spark("array<string collate utf8_binary>") == array(scalar("text"))
    assert by_spark("struct<`a``b` INT NOT NULL, c: long>") == struct(
        ("a`b", scalar("integer")), ("c", scalar("bigint"))
    )


POSTGRES = [
    *("boolean", "bool", "smallint", "int2", "integer", "int", "int4", "bigint", "int8"),
    *("real", "float4", "double precision", "float8", "float(24)", "float(25)"),
    *("numeric", "decimal", "numeric(10)", "numeric(10,2)", "text", "varchar", "bytea", "date"),
    *("timestamp", "timestamp with time zone", "timestamptz", "timestamptz(6)"),
]


@pytest.mark.parametrize("name", POSTGRES)
def test_the_adapter_agrees(name: str) -> None:
    written = exp.DataType.build(name, dialect="postgres")
    ours = by_postgres(name)
    assert adapter.arrow_type(written) == ours.arrow
    wire = adapter.wire_type(ours.arrow)
    assert (wire.oid, wire.name) == (ours.oid, ours.postgres)


def test_the_bare_numeric_is_the_adapters() -> None:
    assert pa.decimal128(*NUMERIC_BARE) == adapter.NUMERIC_BARE


@pytest.mark.parametrize(
    ("given_text", "canonical"),
    [
        ("1.10", "1.1"),
        ("1e2", "100"),
        ("-0.0", "0"),
        ("1E-3", "0.001"),
        ("12345678901234567890123.5", "12345678901234567890123.5"),
        ('{"b":1,"aa":2,"a":3}', '{"a": 3, "b": 1, "aa": 2}'),
        ('{"a":1,"a":2}', '{"a": 2}'),
        ('"\\u00e9\\n\\""', '"é\\n\\""'),
        (" [ true , null ] ", "[true, null]"),
    ],
)
def test_json_has_one_text(given_text: str, canonical: str) -> None:
    assert canonical_json(given_text) == canonical
    assert canonical_json(canonical) == canonical


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", "Infinity", '"\\u0000"', '"\\ud800"', "1e999999999", "[" * 100_000, "01"],
)
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(NotJson):
        canonical_json(text)


# A text with half of a pair of surrogates is none, here and in PostgreSQL.
json_texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | json_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=6,
)


def test_half_a_pair_of_surrogates_is_no_json() -> None:
    with pytest.raises(NotJson):
        canonical_json('"\\ud800"')


@given(json_values)
def test_canonical_json_says_the_same(value: object) -> None:
    text = canonical_json(json.dumps(value))
    assert json.loads(text) == value
    assert canonical_json(json.dumps(value, indent=1, sort_keys=True)) == text
