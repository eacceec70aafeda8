"""The same things asked of a real PostgreSQL: recordings, forms of values, formats of COPY.

What PostgreSQL answers is the expectation; nothing here says what we think it is.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict

from headwater.adapter.errors import AdapterError
from headwater.adapter.pgwire import Column, WireServer
from headwater.adapter.pgwire.binary_form import from_binary, to_binary
from headwater.adapter.pgwire.copy_format import CopyFormat, of_options
from headwater.adapter.pgwire.copy_in import decoder
from headwater.adapter.pgwire.copy_out import CopyEncoder
from headwater.adapter.pgwire.passed_form import passed_to_binary
from headwater.adapter.pgwire.text_form import from_text, to_text
from headwater.adapter.pgwire.wire_statements import CopyTo, parse_text
from headwater.collection.types import by_postgres
from headwater.testing.servers import postgres_server
from tests.end_to_end.memory_backend import Memory
from tests.end_to_end.recorded import Client, parsed, play, readable
from tests.seeds import seeds

pytestmark = pytest.mark.server

RECORDINGS = Path(__file__).parent / "recordings"


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with postgres_server() as running:
        yield running


@pytest.fixture(scope="module")
def postgres(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set timezone to 'UTC'")
        yield connection


# --- conversations --------------------------------------------------------------------------------


def essence(answer: str) -> str | None:
    """What two servers must agree on: not their variables, words, and numbers of tables."""
    tag, payload = parsed(answer)
    if tag in (b"S", b"K", b"R"):
        return None
    if tag in (b"E", b"N"):
        fields = {part[:1]: part[1:] for part in payload.split(b"\0") if part}
        code = fields[b"C"].decode()
        # The place of a syntax error is the wire's to tell; that of others is the backend's.
        return f"{tag.decode()} {code} {fields.get(b'P', b'').decode() if code == '42601' else ''}"
    if tag == b"T":
        (count,) = struct.unpack_from("!H", payload)
        at, columns = 2, []
        for _ in range(count):
            end = payload.index(b"\0", at)
            columns.append((payload[at:end], *struct.unpack_from("!ihIhih", payload, end + 1)[2:]))
            at = end + 19
        return f"T {columns}"
    return answer


@pytest.mark.parametrize("name", ["simple", "extended", "copy", "cursors"])
def test_postgresql_would_have_said_the_same(
    name: str, dsn: str, postgres: psycopg.Connection[Any]
) -> None:
    _tables(postgres)
    options = conninfo_to_dict(dsn)
    recording = (RECORDINGS / f"{name}.txt").read_text()
    client = Client(_connected(options))
    startup = _startup(options["user"], options["dbname"])
    lines = [startup if line.startswith("> startup") else line for line in recording.splitlines()]
    try:
        theirs = play("\n".join(lines), client, essence)
    finally:
        client.close()
    ours = [
        line
        if not line.startswith("< ")
        else (None if essence(line[2:]) is None else f"< {essence(line[2:])}")
        for line in recording.splitlines()
    ]
    said = [line for line in ours if line is not None and not line.startswith("> startup")]
    assert [line for line in theirs.splitlines() if not line.startswith("> startup")] == said


TEXTS = [
    "select * from t", "select * from one", "", "selec 1", "begin", "commit", "rollback",
    "select * from missing", "declare c cursor for select * from t", "fetch 2 from c",
    "fetch all from c", "close c", "select * from t; select * from one", "deallocate s",
    "prepare s as select * from t", "prepare e as select * from one", "execute e",
]  # fmt: skip
# No EXECUTE of what the protocol may have prepared: PostgreSQL runs a DECLARE there, outside of a
# transaction, that it refuses everywhere else, and so do we.
# A prepared FETCH whose cursor is gone makes PostgreSQL 18 hang up.
PREPARED = [text for text in TEXTS if not text.startswith("fetch")]
CONVERSATIONS = 60
EXECUTED_EMPTY = [r"> P s\00\00\00\00", "> S", r"> Q execute\20s\00", "> X"]


def conversation(chance: random.Random) -> list[str]:
    """A random series of messages, now and then one that makes sense."""
    sent: list[tuple[str, bytes]] = []
    if chance.random() < 0.5:
        sent.append(("Q", b"begin\0"))
        if chance.random() < 0.6:
            sent.append(("Q", b"declare c cursor for select * from t\0"))
    if chance.random() < 0.5:
        text = chance.choice(PREPARED[:2])
        sent.append(("P", b"s\0" + text.encode() + b"\0\0\0"))
    for _ in range(chance.randint(1, 12)):
        kind = chance.choice("PPBBBDDEEECSQ")
        statement, portal = (
            chance.choice(("", "s")).encode(),
            chance.choice(("", "p", "q")).encode(),
        )
        target = chance.choice((b"S" + statement, b"P" + portal)) + b"\0"
        formats = chance.choice((b"\0\0", b"\0\1\0\0", b"\0\1\0\1"))
        payload = {
            "P": statement + b"\0" + chance.choice(PREPARED).encode() + b"\0\0\0",
            "B": portal + b"\0" + statement + b"\0\0\0\0\0" + formats,
            "D": target,
            "C": target,
            "E": portal + b"\0" + struct.pack("!i", chance.choice((0, 0, 1, 2, 3))),
            "S": b"",
            "Q": chance.choice(TEXTS).encode() + b"\0",
        }[kind]
        if kind == "Q":
            sent.append(("S", b""))  # Nobody mixes the two protocols without.
        sent.append((kind, payload))
    sent += [("S", b""), ("X", b"")]
    return [f"> {kind} {readable(payload)}".rstrip() for kind, payload in sent]


@pytest.mark.parametrize("start", seeds(1, 40))
def test_random_conversations_are_answered_as_by_postgresql(
    dsn: str, postgres: psycopg.Connection[Any], wire: WireServer, memory: Memory, start: int
) -> None:
    _tables(postgres)
    memory.tables["t"] = pa.table(
        {"n": pa.array([1, None, -3], pa.int64()), "s": pa.array(["a", "", None], pa.string())}
    )
    memory.tables["one"] = pa.table({"one": pa.array([1], pa.int32())})
    options = conninfo_to_dict(dsn)
    first = start * 1_000_000
    for seed in range(first, first + CONVERSATIONS):
        lines = conversation(random.Random(seed)) if seed > first else EXECUTED_EMPTY
        answers = []
        for client, startup in (
            (Client(_connected(options)), _startup(options["user"], options["dbname"])),
            (Client(socket.create_connection((wire.host, wire.port))), _startup("headwater")),
        ):
            try:
                answers.append(play("\n".join([startup, *lines]), client, essence).splitlines()[1:])
            finally:
                client.close()
        theirs, ours = map(_either_refusal, answers)
        assert ours == theirs, f"seed {seed}"


def _either_refusal(lines: list[str]) -> list[str]:
    """In a failed transaction the unnamed portal of what failed may be there or not."""
    failed = False
    said = []
    for line in lines:
        if line.startswith("< Z"):
            failed = line == "< Z E"
        said.append("< E 25P02 " if failed and line == "< E 34000 " else line)
    return said


def _startup(user: Any, database: Any = "headwater") -> str:
    return f"> startup \\00\\03\\00\\00user\\00{user}\\00database\\00{database}\\00\\00"


def _tables(postgres: psycopg.Connection[Any]) -> None:
    postgres.execute("drop table if exists t, one")
    postgres.execute("create table t (n int8, s text)")
    postgres.execute("insert into t values (1, 'a'), (null, ''), (-3, null)")
    postgres.execute("create table one (one int4)")
    postgres.execute("insert into one values (1)")


def _connected(options: dict[str, Any]) -> socket.socket:
    host, port = str(options["host"]), int(options.get("port", 5432))
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(f"{host}/.s.PGSQL.{port}")
    return connected


# --- values ---------------------------------------------------------------------------------------

VALUES: dict[str, list[str]] = {
    "boolean": ["t", "f", "yes", "OFF"],
    "smallint": ["0", "-32768", " 7 "],
    "integer": ["2147483647", "+5"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "real": ["0.1", "1e10", "-0", "1e-5", "123456", "1234567", "3.4028235e38", "Infinity"],
    "double precision": ["0.1", "1e15", "1e16", "-1e-5", "1e300", "NaN", "-inf", "123456789012345"],
    "numeric(12,4)": ["0", "-1.5", "12345678.9999", "0.00005", "1e3", "10000", "0.0001"],
    "numeric(38,9)": ["99999999999999999999999999999", "-0.000000001", "1234567890.123456789"],
    "text": ["", "é☃", "a\tb"],
    "bytea": ["", "\\x00ff", "plain"],
    "date": ["0001-01-01", "9999-12-31", "2000-02-29", "1999-12-31"],
    "time": ["00:00:00", "23:59:59.999999", "12:30"],
    "timestamp": ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2026-01-02 03:04:05.6"],
    "timestamptz": ["2026-01-02 03:04:05+02", "1900-01-01 00:00:00.000001+00", "2026-01-02"],
    "interval": [
        "0",
        "1 day",
        "-1 days",
        "2 days 03:04:05.000006",
        "-00:00:01",
        "36:00:00",
        "1 day, 2:03:04",
        "1.5 hours",
        "90 min",
        "1d 2h 3s",
        "-2 weeks",
    ],
    "jsonb": ['{"b": 1, "aa": [true, null, "x"]}', "1.5", '"é"', "[]"],
    "uuid": ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "{a0eebc999c0b4ef8bb6d6bb9bd380a11}"],
    "integer[]": ["{}", "{1,NULL,-3}", "{ 1 , 2 }"],
    "text[]": ['{a,"b c","",NULL,"NULL","q\\"\\\\","{}"}', "{é,\\,}"],
    "integer[][]": ["{{1,2},{3,4}}"],
    "numeric(5,2)[]": ["{1.5,-2.25}"],
    "timestamptz[]": ['{"2026-01-02 03:04:05.5+00"}'],
    "boolean[]": ["{t,f}"],
}
REFUSED: dict[str, list[str]] = {
    "boolean": ["maybe", ""],
    "smallint": ["32768", "1.5", "x", "", "1 2"],
    "bigint": ["9223372036854775808", "1e3"],
    "real": ["1e39", "x"],
    "double precision": ["1e309", "--1"],
    "numeric(5,2)": ["1000", "x", "1.2.3", ""],
    "date": ["2026-02-30", "x", "2026-13-01"],
    "time": ["25:00:00", "x", "12:60"],
    "timestamp": ["2026-02-30 00:00:00", "x"],
    "interval": ["x", ""],
    "jsonb": ["{", "", "'a'"],
    "uuid": ["x", "a0eebc999c0b4ef8bb6d6bb9bd380a1"],
    "integer[]": ["{1", "1}", "{x}", "{1,}", ""],
}


# An interval of theirs keeps days and hours apart as they were written; a day has 24 hours here.
@pytest.mark.parametrize("type_name", [name for name in VALUES if name != "interval"])
def test_values_have_postgresqls_forms(type_name: str, postgres: psycopg.Connection[Any]) -> None:
    type_ = by_postgres(type_name)
    for written in VALUES[type_name]:
        stored = from_text([written], type_)
        for form, ours in ((0, to_text), (1, to_binary)):
            asked = postgres.pgconn.exec_params(
                f"select $1::text::{type_name}".encode(), [written.encode()], result_format=form
            )
            theirs = asked.get_value(0, 0)
            assert asked.ftype(0) == type_.oid
            assert ours(stored, type_) == [theirs], (written, form)
            if form:
                assert to_binary(from_binary([theirs], type_), type_) == [theirs]


def test_intervals_of_ours_have_postgresqls_forms(postgres: psycopg.Connection[Any]) -> None:
    type_ = by_postgres("interval")
    for written in VALUES["interval"]:
        stored = from_text([written], type_)
        (text,), (binary,) = to_text(stored, type_), to_binary(stored, type_)
        assert text is not None
        # What we write is what PostgreSQL writes of what it reads of it, in both forms.
        for form, ours in ((0, text), (1, binary)):
            asked = postgres.pgconn.exec_params(
                b"select $1::text::interval", [text], result_format=form
            )
            assert asked.get_value(0, 0) == ours


@pytest.mark.parametrize("type_name", REFUSED)
def test_what_postgresql_refuses_is_refused_with_its_code(
    type_name: str, postgres: psycopg.Connection[Any]
) -> None:
    for written in REFUSED[type_name]:
        with pytest.raises(psycopg.Error) as theirs:
            postgres.execute(f"select %s::text::{type_name}", (written,))
        with pytest.raises(AdapterError) as ours:
            from_text([written], by_postgres(type_name))
        assert ours.value.sqlstate == theirs.value.sqlstate, written


def test_random_numerics_have_postgresqls_binary_form(postgres: psycopg.Connection[Any]) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(200):
        precision = chance.randint(1, 38)
        scale = chance.randint(0, precision)
        digits = str(chance.randrange(10 ** chance.randint(1, precision))).rjust(scale + 1, "0")
        sign = chance.choice(("", "-"))
        written = sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)
        type_ = by_postgres("numeric", (precision, scale))
        asked = postgres.pgconn.exec_params(
            f"select $1::text::numeric({precision},{scale})".encode(),
            [written.encode()],
            result_format=1,
        )
        assert to_binary(from_text([written], type_), type_) == [asked.get_value(0, 0)], written


@pytest.mark.parametrize(
    "query",
    [
        "select oid, relname, relkind, relnatts, reltuples, relhasindex, xmin from pg_class",
        "select indexrelid, indkey, indclass from pg_index",
        "select proargtypes, proargnames, proallargtypes, proargmodes from pg_proc",
        "select datname, datcollate, encoding from pg_database",
        "select typname, typdefault, typlen, typtype from pg_type",
    ],
)
def test_columns_of_the_catalog_have_postgresqls_binary_form(
    query: str, postgres: psycopg.Connection[Any]
) -> None:
    in_text = postgres.pgconn.exec_params(f"{query} order by 1 desc limit 40".encode(), [])
    binary = postgres.pgconn.exec_params(
        f"{query} order by 1 desc limit 40".encode(), [], result_format=1
    )
    assert in_text.ntuples > 0
    for column in range(in_text.nfields):
        texts = [in_text.get_value(row, column) for row in range(in_text.ntuples)]
        expected = [binary.get_value(row, column) for row in range(in_text.ntuples)]
        written = [None if each is None else each.decode() for each in texts]
        assert passed_to_binary(written, in_text.ftype(column)) == expected


# --- COPY -----------------------------------------------------------------------------------------

STRINGS = ["", "a", "\\N", "\\.", "NULL", 'q"q', "a,b", "tab\t", "line\nbreak", "\r", "é", "\\",
           "'", " ", "\b\f\v", ";"]  # fmt: skip
OPTIONS = [
    "format text",
    "format text, delimiter ';', null 'NULL'",
    "format text, header",
    "format csv",
    "format csv, header",
    "format csv, delimiter ';', quote '''', null 'NULL'",
    "format csv, escape '\\'",
    "format csv, force_quote *",
    "format csv, force_quote (s)",
    "format binary",
]


def _parsed_options(written: str) -> CopyFormat:
    ((statement, _),) = parse_text(f"copy t to stdout ({written})")
    assert isinstance(statement, CopyTo)
    return statement.format


@pytest.mark.parametrize("options", OPTIONS)
def test_copy_writes_postgresqls_bytes_and_reads_them(
    options: str, postgres: psycopg.Connection[Any]
) -> None:
    chosen = _parsed_options(options)
    rows = [(number, string) for number, string in enumerate(STRINGS)] + [(None, None)]
    postgres.execute("drop table if exists c")
    postgres.execute("create table c (n int8, s text)")
    postgres.cursor().executemany("insert into c values (%s, %s)", rows)
    with postgres.cursor().copy(f"copy c to stdout ({options})") as copy:
        theirs = b"".join(copy)
    columns = (Column("n", pa.int64()), Column("s", pa.string()))
    encoder = CopyEncoder(columns, chosen)
    batch = pa.RecordBatch.from_pylist(
        [{"n": number, "s": string} for number, string in rows],
        pa.schema([("n", pa.int64()), ("s", pa.string())]),
    )
    sent = encoder.begin() + encoder.encode(batch) + encoder.end()
    assert _data(sent) == theirs
    # And back: what PostgreSQL reads of it is what we read of it.
    incoming = of_options(_incoming(chosen), to_client=False)
    decoding = decoder(columns, incoming)
    batches = [batch for batch in (decoding.feed(theirs), decoding.finish()) if batch is not None]
    ours = [tuple(row.values()) for each in batches for row in each.to_pylist()]
    postgres.execute("truncate c")
    accepted = options.replace(", force_quote *", "").replace(", force_quote (s)", "")
    with postgres.cursor().copy(f"copy c from stdin ({accepted})") as copy:
        copy.write(theirs)
    assert ours == postgres.execute("select n, s from c").fetchall()


def _incoming(chosen: CopyFormat) -> dict[str, Any]:
    if chosen.kind == "binary":
        return {"format": "binary"}
    options: dict[str, Any] = {
        "format": chosen.kind,
        "delimiter": chosen.delimiter,
        "null": chosen.null,
        "header": "true" if chosen.header == "yes" else "false",
    }
    if chosen.kind == "csv":
        options |= {"quote": chosen.quote, "escape": chosen.escape}
    return options


def _data(messages: bytes) -> bytes:
    data, at = b"", 0
    while at < len(messages):
        (length,) = struct.unpack_from("!i", messages, at + 1)
        data += messages[at + 5 : at + 1 + length]
        at += 1 + length
    return data
