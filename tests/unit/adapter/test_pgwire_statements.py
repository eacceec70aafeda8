"""The statements that belong to the wire: COPY, cursors and the rest, read or refused."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.pgwire.copy_format import CopyFormat
from headwater.adapter.pgwire.durations import duration_ms
from headwater.adapter.pgwire.prepare_statements import Evaluated, ExecutePrepared, Literal
from headwater.adapter.pgwire.wire_statements import (
    CloseCursor,
    CopyFrom,
    CopyTo,
    Deallocate,
    DeclareCursor,
    Discard,
    Fetch,
    ResetAll,
    Unlisten,
    parse_text,
)
from headwater.adapter.sql import statements

CSV = CopyFormat("csv", ",", "")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("copy t from stdin", CopyFrom("t", None, CopyFormat())),
        ('COPY "T" (a, "B") FROM STDIN', CopyFrom("T", ("a", "B"), CopyFormat())),
        ("copy public.t from stdin with (format csv)", CopyFrom("public.t", None, CSV)),
        ("copy t from stdin (format 'csv', header)",
         CopyFrom("t", None, CopyFormat("csv", ",", "", "yes"))),
        ("copy t from stdin csv header", CopyFrom("t", None, CopyFormat("csv", ",", "", "yes"))),
        ("copy t from stdin with delimiter as E'\\t' null as ''",
         CopyFrom("t", None, CopyFormat("text", "\t", ""))),
        ("copy t from stdin with csv quote as '''' escape as '\\' force not null a, b",
         CopyFrom("t", None, CopyFormat("csv", ",", "", "no", "'", "\\", (), (), ("a", "b")))),
        ("copy t from stdin (format csv, force_null *)",
         CopyFrom("t", None, CopyFormat("csv", ",", "", force_null="*"))),
        ("copy binary t from stdin", CopyFrom("t", None, CopyFormat("binary"))),
        ("fetch c", Fetch("c", 1)),
        ("fetch next from c", Fetch("c", 1)),
        ("fetch 10 in \"C\"", Fetch("C", 10)),
        ("fetch forward all from c", Fetch("c", None)),
        ("fetch forward c", Fetch("c", 1)),
        ("fetch all c with (timeout '1s')", Fetch("c", None, 1000)),
        ("fetch 0 c", Fetch("c", 0)),
        ("close c", CloseCursor("c")),
        ("close all", CloseCursor(None)),
        ("execute s", ExecutePrepared("s", ())),
        ("execute s (- 1, 'a''b', null, f(1, array[2, 3]))", ExecutePrepared("s", (
            Literal("-1", is_number=True), Literal("a'b"), Literal(None),
            Evaluated("f(1, array[2, 3])"),
        ))),
        ("deallocate prepare s", Deallocate("s")),
        ("deallocate all", Deallocate(None)),
        ("discard all", Discard()),
        ("reset all", ResetAll()),
        ("unlisten *", Unlisten()),
    ],
)  # fmt: skip
def test_read(sql: str, expected: Any) -> None:
    assert parse_text(sql) == ((expected, sql),)


def test_a_table_is_copied_out_by_a_query() -> None:
    ((copy, _),) = parse_text('copy "T" (a, "b""c") to stdout')
    assert isinstance(copy, CopyTo)
    assert copy.query_sql == 'SELECT "a", "b""c" FROM "T"'
    assert isinstance(copy.query, statements.Select)
    ((copy, _),) = parse_text("copy (select ')' from (select 1) x) to stdout")
    assert isinstance(copy, CopyTo)
    assert copy.query_sql == "select ')' from (select 1) x"


def test_a_cursor_has_a_query() -> None:
    sql = "declare c binary no scroll cursor with hold for select 1 as x"
    ((declared, _),) = parse_text(sql)
    assert isinstance(declared, DeclareCursor)
    assert (declared.name, declared.binary, declared.hold) == ("c", True, True)
    assert declared.query_sql == "select 1 as x"


def test_statements_of_both_kinds_in_one_text_keep_their_places() -> None:
    parsed = parse_text("select 1 as a; copy t from stdin; begin")
    assert [text for _, text in parsed] == ["select 1 as a", "copy t from stdin", "begin"]
    with pytest.raises(AdapterError) as refused:
        parse_text("close all; selec 1")
    assert refused.value.position == 12
    with pytest.raises(AdapterError) as refused:
        parse_text("copy (selec 1) to stdout")
    assert refused.value.sqlstate == "0A000"
    with pytest.raises(AdapterError) as refused:
        parse_text("close all; copy (select 1 2) to stdout")
    assert (refused.value.sqlstate, refused.value.position) == ("42601", 27)


@pytest.mark.parametrize(
    ("sql", "sqlstate"),
    [
        ("copy t", "42601"),
        ("copy t from", "0A000"),
        ("copy t from stdin where a = 1", "0A000"),
        ("copy t to '/tmp/x'", "0A000"),
        ("copy t to program 'id'", "0A000"),
        ("copy (select 1) from stdin", "42601"),
        ("copy () to stdout", "42601"),
        ("copy (insert into t values (1)) to stdout", "0A000"),
        ("copy (delete from t) to stdout", "0A000"),
        ("copy t (a, a) from stdin", "42701"),
        ("copy t from stdin (format csv, format csv)", "42601"),
        ("copy t from stdin (nonsense 1)", "42601"),
        ("copy t from stdin nonsense", "42601"),
        ("copy t from stdin (freeze)", "0A000"),
        ("declare c scroll cursor for select 1", "0A000"),
        ("declare c cursor for insert into t values (1)", "0A000"),
        ("declare c cursor", "42601"),
        ("declare c cursor for", "42601"),
        ("fetch prior from c", "0A000"),
        ("fetch -1 from c", "0A000"),
        ("fetch backward 1 from c", "0A000"),
        ("fetch 1.5 from c", "22023"),
        ("fetch", "42601"),
        ("close", "42601"),
        ("close a b", "42601"),
        ("discard plans", "0A000"),
        ("reset all x", "42601"),
    ],
)
def test_refused(sql: str, sqlstate: str) -> None:
    with pytest.raises(AdapterError) as refused:
        parse_text(sql)
    assert refused.value.sqlstate == sqlstate


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [("0", 0), ("250", 250), ("5s", 5000), ("1.5 min", 90_000), ("2 hours", 7_200_000)],
)
def test_lengths_of_time(written: str, milliseconds: int) -> None:
    assert duration_ms(written) == milliseconds


@pytest.mark.parametrize("written", ["", "soon", "-1", "1 month", "1e99", "nan", "inf"])
def test_no_lengths_of_time(written: str) -> None:
    with pytest.raises(AdapterError) as refused:
        duration_ms(written)
    assert refused.value.sqlstate == "22023"
