"""PostgreSQL's dialect on Spark gives PostgreSQL's rows: the corpus, asked of both.

Tables are random (the seed is printed), PostgreSQL is the wheel's with the shadow's settings, Spark
the session that everything runs in. Rows are compared with their types: an integer is no numeric, a
date no timestamp. Numerics are compared by value, so quotients and averages to the last digit.
"""

from __future__ import annotations

import math
import random
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headwater.adapter.dialect import Transpiled, patterns, to_spark
from headwater.adapter.errors import AdapterError
from headwater.adapter.mistakes import sentence, sqlstate
from headwater.adapter.sql.forms import canonical
from headwater.adapter.sql.values import assign
from headwater.collection.schema import type_of
from headwater.collection.types import SqlType, by_postgres, by_spark
from headwater.compute.catalyst import try_eval
from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.catalyst.jvm import java_object
from headwater.compute.catalyst.query_session import query_session
from tests.queries.tables import queries, schemas, tables
from tests.unit.adapter_dialect.corpus import EXPRESSIONS
from tests.unit.adapter_dialect.failing_corpus import FAILING
from tests.unit.adapter_dialect.input_corpus import INPUTS, UNSUPPORTED
from tests.unit.adapter_dialect.postgres_side import COUNTS, ask, load, loaded
from tests.unit.adapter_dialect.query_corpus import QUERIES
from tests.unit.adapter_dialect.relations import RELATIONS, rows

pytestmark = [pytest.mark.spark, pytest.mark.server]

SEED = random.SystemRandom().randrange(1_000_000)
REAL_OID = 700
EXPRESSIONS_PER_QUERY = 60
"""One job each; but an error in one of them fails the job."""


def _single(value: float | None) -> float | None:
    """The float that the shortest digits of a real stand for."""
    return None if value is None else float(struct.unpack("f", struct.pack("f", value))[0])


@dataclass(frozen=True)
class Both:
    """The two engines, with the same tables."""

    postgres: psycopg.Connection[Any]
    spark: Any

    def theirs(self, sql: str) -> list[tuple[Any, ...]]:
        _, oids, answer = ask(self.postgres, sql)
        reals = [oid == REAL_OID for oid in oids]
        return [
            tuple(_single(v) if real else v for v, real in zip(row, reals, strict=True))
            for row in answer
        ]

    def ours(self, found: Transpiled) -> list[tuple[Any, ...]]:
        frame = self.spark.sql(found.text)
        declared = [by_spark(field.dataType.simpleString()) for field in frame.schema.fields]
        assert declared == [c.type for c in found.columns], (found.text, declared)
        table = frame.toArrow()
        columns = [column.to_pylist() for column in table.columns]
        return list(zip(*columns, strict=True)) if columns else []


def register(spark: Any, name: str, table: pa.Table) -> None:
    """Make a temporary view; Spark takes an Arrow timestamp without a zone for one with."""
    columns = [
        f"CAST(`{field.name}` AS {type_of(field).spark}) AS `{field.name}`"
        for field in table.schema
    ]
    spark.createDataFrame(table).selectExpr(*columns).createOrReplaceTempView(name)


@pytest.fixture(scope="module")
def both(spark: Any) -> Iterator[Both]:
    print(f"seed {SEED}")
    spark = query_session(spark)
    for relation, columns in RELATIONS.items():
        values = list(rows(SEED, relation, COUNTS[relation]))
        arrays = [
            pa.array([row[place] for row in values], type_.arrow)
            for place, type_ in enumerate(columns.values())
        ]
        register(spark, relation, pa.Table.from_arrays(arrays, names=list(columns)))
    with loaded(SEED) as connection:
        yield Both(connection, spark)
    for relation in RELATIONS:
        spark.catalog.dropTempView(relation)


def same(theirs: Any, ours: Any) -> bool:
    """Equal values of equal types."""
    if theirs is None or ours is None:
        return theirs is ours
    if isinstance(theirs, list):
        return (
            isinstance(ours, list)
            and len(theirs) == len(ours)
            and all(same(a, b) for a, b in zip(theirs, ours, strict=True))
        )
    if isinstance(theirs, float):
        return isinstance(ours, float) and bool(
            theirs == ours or (math.isnan(theirs) and math.isnan(ours))
        )
    if isinstance(theirs, memoryview | bytes):
        return isinstance(ours, bytes) and bytes(theirs) == ours
    kinds = (bool, int, str, Decimal, datetime, date, timedelta)
    kind = next((kind for kind in kinds if isinstance(theirs, kind)), type(theirs))
    return isinstance(ours, kind) and bool(theirs == ours)


def same_rows(theirs: list[tuple[Any, ...]], ours: list[tuple[Any, ...]]) -> bool:
    """Equal rows, in any order."""
    return Counter(map(_key, theirs)) == Counter(map(_key, ours))


def _key(row: tuple[Any, ...]) -> str:
    """A row as something to sort and count by."""

    def shown(value: Any) -> str:
        if isinstance(value, Decimal):
            whole, _, fraction = format(value, "f").partition(".")
            return f"{whole}.{fraction.rstrip('0')}" if value else "0"
        if isinstance(value, float):
            return repr(value + 0.0)
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(UTC)
        return f"{type(value).__name__} {value!r}"

    return " | ".join(map(shown, row))


def test_every_expression(both: Both) -> None:
    different = []
    for place in range(0, len(EXPRESSIONS), EXPRESSIONS_PER_QUERY):
        some = EXPRESSIONS[place : place + EXPRESSIONS_PER_QUERY]
        listed = ", ".join(f"{e} as c{n}" for n, e in enumerate(some))
        sql = f"select {listed} from x order by id"
        found = to_spark(sql, RELATIONS)
        theirs, ours = both.theirs(sql), both.ours(found)
        assert len(theirs) == len(ours)
        for number, expression in enumerate(some):
            for row, (a, b) in enumerate(zip(theirs, ours, strict=True)):
                if not same(a[number], b[number]):
                    different.append((expression, row, a[number], b[number]))
                    break
    assert not different, "\n".join(map(str, different))


@pytest.mark.parametrize(
    "part", [pytest.param(0, id="a third"), pytest.param(1, marks=pytest.mark.soak, id="the rest")]
)
def test_every_query(both: Both, part: int) -> None:
    """Each is a job of its own: a third of them, another one with each seed; ``make soak``: all."""
    different = []
    for place, query in enumerate(QUERIES):
        if (place % 3 == SEED % 3) != (part == 0):
            continue
        sql = query.lstrip("=")
        theirs, ours = both.theirs(sql), both.ours(to_spark(sql, RELATIONS))
        if query.startswith("="):
            equal = len(theirs) == len(ours) and all(
                same(list(a), list(b)) for a, b in zip(theirs, ours, strict=True)
            )
        else:
            equal = same_rows(theirs, ours)
        if not equal:
            different.append((query, theirs[:3], ours[:3]))
    assert not different, "\n".join(map(str, different))


@pytest.mark.soak
def test_tpch(both: Both) -> None:
    """22 real queries; without their LIMIT, under which PostgreSQL leaves ties open."""
    relations = tables("tpch", SEED)
    for name, table in relations.items():
        load(both.postgres, name, table)
        register(both.spark, name, table)
    different = []
    for name, text in queries("tpch").items():
        sql = re.sub(r"\s+limit\s+\d+\s*$", "", text, flags=re.IGNORECASE)
        found = to_spark(sql, {name: table.schema for name, table in relations.items()})
        theirs, ours = both.theirs(sql), both.ours(found)
        if not same_rows(theirs, ours):
            different.append((name, theirs[:3], ours[:3]))
    for name in relations:
        both.spark.catalog.dropTempView(name)
    assert not different, "\n".join(map(str, different))


def test_views_can_be_kept_of_it(spark: Any) -> None:
    """The texts are ones that the front end of maintained views understands."""
    relations = {
        name: pa.schema([pa.field(column, type_.arrow) for column, type_ in columns.items()])
        for name, columns in RELATIONS.items()
    }
    workspace = Workspace(spark, relations)
    # Its own texts do not escape a setting to be replaced; it finds out, and refuses.
    kept = [e for e in EXPRESSIONS if "${" not in e]
    for place in range(0, len(kept), EXPRESSIONS_PER_QUERY):
        some = kept[place : place + EXPRESSIONS_PER_QUERY]
        listed = ", ".join(f"{e} as c{n}" for n, e in enumerate(some))
        workspace.compile_sql(to_spark(f"select {listed} from x", RELATIONS).text)
    workspace = Workspace(spark, schemas("tpch"))
    for text in queries("tpch").values():
        workspace.compile_sql(to_spark(text, schemas("tpch")).text)


def test_what_fails_in_postgresql_fails_in_spark(both: Both) -> None:
    quiet = []
    for sql in FAILING:
        with pytest.raises(psycopg.Error):
            both.theirs(sql)
        frame = both.spark.sql(to_spark(sql, RELATIONS).text)  # it is taken …
        try:
            quiet.append((sql, frame.toArrow().to_pylist()[:3]))  # … and fails on its rows
        except (PySparkException, Py4JJavaError):
            continue
    assert not quiet


def test_any_string_is_the_same_string(both: Both) -> None:
    """Quotes, backslashes, dollars, line ends: the literal survives two languages."""
    chance = random.Random(SEED)
    alphabet = "ab'\\\"$`{}%_\n\r\t ;-/*é日😀\x7f\u2028"
    words = ["".join(chance.choices(alphabet, k=chance.randint(0, 12))) for _ in range(200)]
    listed = ", ".join("'" + word.replace("'", "''") + "'" for word in words)
    sql = f"select {listed}"
    assert both.theirs(sql) == [tuple(words)]
    assert both.ours(to_spark(sql, {})) == [tuple(words)]


_WORDS_OF_CASES = (
    "\u0391\u03a3 \u03a3\u0391\u03a3. \u0130i \u0131I \u0149\u00df \u01c5 \ufb01 \u1e9e\u00df"
)
"""A sigma at the end, an i with and without its dot, what has two letters in full."""


def test_every_letter_has_the_same_cases(both: Both) -> None:
    """All code points of the planes that have letters with cases, and what a text makes of some."""
    planes = [chr(code) for code in range(1, 0x20000) if not 0xD800 <= code < 0xE000]
    for text in ("".join(planes), " ".join(planes[:3_000]), _WORDS_OF_CASES):
        literal = "'" + text.replace("'", "''") + "'"
        sql = f"select upper(t), lower(t) from (select {literal} as t) as q"
        (theirs,), (ours,) = both.theirs(sql), both.ours(to_spark(sql, {}))
        for written, known, found in zip(("upper", "lower"), theirs, ours, strict=True):
            pairs = zip(text, known, found, strict=True)
            different = [(written, *pair) for pair in pairs if pair[1] != pair[2]]
            assert not different
        assert known != text


def test_a_regex_takes_every_letter_in_its_two_cases(both: Both) -> None:
    letters = "".join(filter(str.isalnum, map(chr, range(0x20000))))
    ((upper, lower),) = both.theirs(
        f"select upper(t), lower(t) from (select '{letters}' as t) as q"
    )
    pairs = zip(letters, upper, lower, strict=True)
    assert not [each for each, *two in pairs if set(patterns._cases(each)) != set(two)]


# --- texts that are read as values ----------------------------------------------------------------

Answer = tuple[str, Any]
"""``ok`` and a value, or an SQLSTATE and a sentence."""


def _type(written: str) -> SqlType:
    name, _, arguments = written.partition("(")
    sizes = tuple(int(each) for each in arguments.rstrip(")").split(",")) if arguments else ()
    return by_postgres(name, sizes)


def _of_postgres(both: Both, written: str, text: str) -> Answer:
    try:
        row = both.postgres.execute(f"select %s::{written}".encode(), (text,)).fetchone()
    except psycopg.Error as error:
        both.postgres.rollback()
        return error.sqlstate or "", error.diag.message_primary
    assert row is not None
    (value,) = row
    if written == "real":
        return "ok", _single(value)
    return "ok", str(value) if written == "uuid" else value


def _of_literals(type_: SqlType, text: str) -> Answer:
    try:
        return "ok", canonical(text, "uuid") if type_.name == "uuid" else assign(text, type_.arrow)
    except AdapterError as error:
        return error.sqlstate, error.primary


def _of_columns(spark: Any, written: str, texts: list[str]) -> list[Answer]:
    """Two calls of Java's, without a job: the values, and what is said where there is none."""
    quoted = spark.createDataFrame(pa.table({"t": texts}))
    read = f"headwater_read('{written}', t)"
    nothing = spark.createDataFrame([], quoted.schema)
    helper = java_object(spark, try_eval._CLASSES, shipped=True)
    said = list(helper.messages(nothing.selectExpr(read)._jdf, quoted._jdf))
    values = quoted.selectExpr(f"headwater_try({read}) AS v").toArrow().column("v").to_pylist()
    return [
        ("ok", value) if words is None else _refused(list(words))
        for words, value in zip(said, values, strict=True)
    ]


def _refused(told: list[str]) -> Answer:
    condition, _, message = told
    said = sentence(try_eval.plain(message), condition)
    return sqlstate(said, condition, None) or "", said


@pytest.mark.parametrize("written", INPUTS)
def test_a_text_is_the_same_value_everywhere(both: Both, written: str) -> None:
    """To PostgreSQL, as a literal and its like, as a row of a column; errors included."""
    spark = try_eval.passage_session(both.spark)
    both.postgres.execute("set timezone = 'UTC'")
    different = []
    texts = list(INPUTS[written])
    for text, column in zip(texts, _of_columns(spark, written, texts), strict=True):
        theirs, literal = _of_postgres(both, written, text), _of_literals(_type(written), text)
        for ours in (literal, column):
            alike = theirs[0] == ours[0] and (
                same(theirs[1], ours[1])
                if theirs[0] == "ok"
                else theirs[1] == ours[1] or written.startswith("numeric")
            )
            if not alike:
                different.append((text, theirs, ours))
    assert not different, "\n".join(map(str, different))


@pytest.mark.parametrize("written", UNSUPPORTED)
def test_a_text_that_only_postgresql_reads_is_refused_by_name(both: Both, written: str) -> None:
    spark = try_eval.passage_session(both.spark)
    texts = list(UNSUPPORTED[written])
    for text, column in zip(texts, _of_columns(spark, written, texts), strict=True):
        (read,) = both.theirs(f"select '{text}'::{written}::text")
        assert read[0]
        literal = _of_literals(_type(written), text)
        assert (literal[0], column[0]) == ("0A000", "0A000"), (text, literal, column)
        assert column[1].startswith(literal[1])
