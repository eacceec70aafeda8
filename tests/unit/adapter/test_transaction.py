"""What a transaction may still do, decided purely."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.adapter.catalog import Sources
from headwater.adapter.change import Block, Change, Effect, after
from headwater.adapter.errors import ReadOnlyTransaction, Unsupported
from headwater.adapter.group_commit import ReadSet, TableWrite
from headwater.adapter.object_errors import TransactionTooLarge
from headwater.adapter.transaction import Transaction
from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.persist.commands import OpenReader, SetItem
from headwater.persist.errors import CompactionRegression
from headwater.testing.sql_server import SqlServer

T, U, V = GlobalId(1), GlobalId(2), GlobalId(3)


def write(gid: GlobalId) -> TableWrite:
    return TableWrite(gid, f"t{gid}", (), pa.table({"k": [1]}), [1])


def test_what_it_read_is_what_its_writes_rest_on() -> None:
    transaction = Transaction().having_read(7, Sources(tables={T: "t"}))
    transaction = transaction.having_read(7, Sources(tables={U: "u"})).having_written(write(T))
    assert transaction.read_set == ReadSet(7, {T: "t", U: "u"})
    assert Transaction().having_written(write(T)).read_set is None


def test_it_does_not_rest_on_what_changes_by_itself_whichever_comes_first() -> None:
    recent = Sources(tables={T: "t"}, unsteady={V: "recent"})
    Transaction().having_written(write(T)).admit_read(Sources(tables={T: "t"}))
    Transaction().admit_read(recent)
    for transaction in (Transaction().having_written(write(T)), Transaction().locking()):
        with pytest.raises(Unsupported, match="recent"):
            transaction.admit_read(recent)
    with pytest.raises(Unsupported, match="recent"):
        Transaction().having_read(7, recent).locking()


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.adapter.transaction.TRANSACTION_BYTES_MAX", 10)
    transaction = Transaction().having_written(write(T)).having_written(write(U))
    with pytest.raises(TransactionTooLarge) as told:
        transaction.having_written(write(T))
    assert told.value.sqlstate == "54000"
    back = transaction.having_read(7, Sources(tables={T: "t"})).back_to(Transaction())
    assert (back.size_bytes, back.time, back.reads) == (0, 7, {T: "t"})


def test_it_does_not_write_after_what_changes_by_itself() -> None:
    transaction = Transaction().having_read(7, Sources(tables={T: "t"}, unsteady={V: "recent"}))
    transaction = transaction.having_read(7, Sources(tables={U: "u"}))
    with pytest.raises(Unsupported, match="recent"):
        transaction.admit_write("INSERT")


def test_one_that_only_reads_does_nothing_else() -> None:
    transaction = Transaction(read_only=True)
    with pytest.raises(ReadOnlyTransaction):
        transaction.admit_write("INSERT")
    with pytest.raises(ReadOnlyTransaction):
        transaction.admit_definition()


def test_what_others_keep_is_not_made_beside_rows() -> None:
    kept = Change("CREATE SOURCE", (), (Effect('creating source "s"', lambda _: None),))
    Transaction().having_written(write(T)).admit_definition()
    with pytest.raises(Unsupported, match='creating source "s" and rows in one transaction'):
        Block({}).having(kept, (), rows=True)
    with pytest.raises(Unsupported):
        Transaction(definitions=Block({}).having(kept, ())).admit_write("INSERT")
    Transaction(definitions=Block({}).having(Change("CREATE TABLE"), ())).admit_write("INSERT")


def test_two_that_others_keep_are_not_in_one_entry() -> None:
    made, dropped = (
        Change(what, (), (Effect(what, lambda _: None),)) for what in ("creating a", "dropping b")
    )
    with pytest.raises(Unsupported, match="dropping b beside creating a in one transaction"):
        Block({}).having(made, ()).having(dropped, ())


def test_what_has_entries_of_its_own_has_no_others_beside() -> None:
    alone = Change("CREATE", (), (Effect("replacing v", lambda _: None, alone=True),))
    table = Change("CREATE TABLE", (SetItem("catalog/t", b""),))
    for one, other in ((alone, table), (table, alone)):
        with pytest.raises(Unsupported, match="replacing v beside other definitions"):
            Block({}).having(one, ()).having(other, ())


def test_history_may_move_on_while_a_definition_is_planned() -> None:
    with SqlServer() as server:
        sql = server.session()
        sql("CREATE TABLE t (k bigint)")
        state = server.client.core.state
        (gid,) = state.collections
        held = OpenReader(gid, "view/1", "a view", Frontier.of(0))  # As it was planned, before.
        seen, commands = after(state, (held,), 0, holds=False)
        assert (seen, commands) == (state, (held,))
        with pytest.raises(CompactionRegression):
            after(state, (held,), 0)
