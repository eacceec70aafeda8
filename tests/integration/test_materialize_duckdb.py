"""What is DuckDB's own: other processes, and tables that others have a part in.

What it shares with all SQL endpoints is in ``test_materialize_drivers``.
"""

from __future__ import annotations

import dataclasses
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.base.errors import Determinate
from headwater.base.ids import GlobalId
from headwater.materialize.checkpoint import Position
from headwater.materialize.definition import Binding, delivered_schema
from headwater.materialize.delivery import Transaction
from headwater.materialize.drivers import duckdb_file
from headwater.materialize.drivers.duckdb_file import DuckFile, FileBusy
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import RangeSpec
from headwater.materialize.transport.in_process import InProcess
from tests.integration.materialize_places import (
    FULL,
    NAME,
    DuckDbPlace,
    asked,
    open_delivery,
    prepared,
    stores,
    transact,
)

pytestmark = pytest.mark.server

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
BINDING = Binding("orders", GlobalId(1), "target", ("k",))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[DuckDbPlace]:
    with closing(DuckDbPlace(tmp_path)) as made:
        yield made


_KILLED = """
import os, pickle, signal, sys
from headwater.materialize.drivers.duckdb import DuckDbDriver
from headwater.materialize.drivers.duckdb_file import DuckFile

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

driver = DuckDbDriver()
*requests, commit = pickle.load(sys.stdin.buffer)
for request in requests:
    list(driver.respond(request))
if sys.argv[1] == "before":
    die()
DuckFile.close = die
list(driver.respond(commit))
"""


@pytest.mark.parametrize(("when", "time"), [("before", 2), ("after", 3)])
def test_a_process_is_killed_beside_its_commit(tmp_path: Path, when: str, time: int) -> None:
    """Just before, and just after: then what is committed is in DuckDB's log, and not its file."""
    place = DuckDbPlace(tmp_path)
    with closing(place):
        spec = prepared(place, [BINDING], [SCHEMA])
        transact(open_delivery(place, spec), SCHEMA, 2, ((1, "a"), 1), ((2, "b"), 1))
    changed = [((1, "a"), -1), ((1, "c"), 1), ((2, "b"), -1), ((3, "d"), 1)]
    requests = [
        m.Open(spec, "v1", RangeSpec(FULL.begin, FULL.end)),
        stores(SCHEMA, 3, *changed),
        m.StartCommit(Position(3).to_checkpoint(NAME)),
    ]
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, when],
        input=pickle.dumps(requests),
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    place.reopen()
    with closing(place):
        assert open_delivery(place, spec).position == Position(time)
        rows = {2: [(1, "a"), (2, "b")], 3: [(1, "c"), (3, "d")]}
        assert place.select(["k", "v"], "target") == rows[time]


_READING = """
import duckdb, sys
with duckdb.connect(sys.argv[1], read_only=True) as db:
    print(db.execute("SELECT * FROM target").fetchall(), flush=True)
    sys.stdin.read()
"""


def test_others_read_between_transactions(
    place: DuckDbPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = prepared(place, [BINDING], [SCHEMA])
    delivery = open_delivery(place, spec)
    transact(delivery, SCHEMA, 2, ((1, "a"), 1))
    place.close()
    reader = subprocess.Popen(
        [sys.executable, "-c", _READING, str(place.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    with reader:
        assert reader.stdout.readline() == "[(1, 'a')]\n"
        with monkeypatch.context() as patched:
            patched.setattr(duckdb_file, "BUSY_S", 0.1)
            with pytest.raises(FileBusy, match=f"it is in use .*PID {reader.pid}"):
                transact(delivery, SCHEMA, 3, ((2, "b"), 1))
        reader.stdin.close()
    place.reopen()
    transact(open_delivery(place, spec), SCHEMA, 3, ((2, "b"), 1))
    assert place.select(["k"], "target") == [(1,), (2,)]


def test_two_sessions_of_one_process_take_turns(
    place: DuckDbPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they call the file by different names, which DuckDB would not notice."""
    (place.path.parent / "other").symlink_to(place.path.parent)
    first, second = (
        DuckFile(str(place.path)),
        DuckFile(f"{place.path.parent}/other/{place.path.name}"),
    )
    first.open()
    monkeypatch.setattr(duckdb_file, "BUSY_S", 0.1)
    with pytest.raises(FileBusy, match="another session of this process"):
        second.open()
    first.close()
    second.open()
    second.close()


def test_a_question_makes_no_file(tmp_path: Path) -> None:
    with closing(DuckDbPlace(tmp_path)) as place:
        place.config = {"path": str(tmp_path / "deeper" / "e.duckdb")}
        _, question = asked(place, [BINDING], [SCHEMA])
        stream = InProcess(place.make())
        stream.send(question)
        assert isinstance(stream.receive(), m.Validated)
        stream.end()
    assert not (tmp_path / "deeper").exists()


@pytest.mark.parametrize("hard_delete", [True, False])
def test_what_others_keep_in_the_table_stays(place: DuckDbPlace, *, hard_delete: bool) -> None:
    schema = delivered_schema(BINDING, SCHEMA, hard_delete=hard_delete)
    more = () if hard_delete else ("c",)
    spec = prepared(place, [BINDING], [schema], hard_delete=hard_delete)
    delivery = open_delivery(place, spec)
    transact(delivery, schema, 2, ((1, "a", *more), 1), ((2, "b", *more), 1))
    delivery.end()
    place.execute("ALTER TABLE target ADD COLUMN note VARCHAR")
    place.execute("UPDATE target SET note = 'mine'")
    delivery = open_delivery(place, spec)
    transact(
        delivery, schema, 3,
        ((1, "a", *more), -1), ((1, "c", *more), 1), ((2, "b", *more), -1), ((3, "d", *more), 1),
    )  # fmt: skip
    expected = [(1, "c", "mine"), (2, "b", "mine"), (3, "d", None)]
    if hard_delete:
        del expected[1]
    assert place.select(["k", "v", "note"], "target") == expected


def test_a_table_of_nothing_but_its_key(place: DuckDbPlace) -> None:
    schema = pa.schema([SCHEMA.field("k")])
    spec = prepared(place, [BINDING], [schema])
    place.execute("ALTER TABLE target ADD COLUMN note VARCHAR")
    delivery = open_delivery(place, spec)
    transact(delivery, schema, 2, ((1,), 1), ((2,), 1))
    again = stores(schema, 3, ((1,), 1))
    again = dataclasses.replace(again, exists=pa.array([True]))
    delivery.transact(Transaction.of([again], Position(3)))
    assert place.select(["k"], "target") == [(1,), (2,)]


def test_a_decimal_is_not_rounded(place: DuckDbPlace) -> None:
    schema = pa.schema([SCHEMA.field("k"), pa.field("d", pa.decimal128(20, 3))])
    place.execute("CREATE TABLE target (k BIGINT PRIMARY KEY, d DECIMAL(5,1))")
    delivery = open_delivery(place, prepared(place, [BINDING], [schema]))
    transact(delivery, schema, 2, ((1, Decimal("12.300")), 1))
    with pytest.raises(Determinate, match="cannot write to DuckDB file"):
        transact(delivery, schema, 3, ((2, Decimal("12.340")), 1))
    place.kill()
    assert place.select(["k", "d"], "target") == [(1, Decimal("12.3"))]
