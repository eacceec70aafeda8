"""Codecs as a public port: whose rows they are, and reading what an older version wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from headwater.persist import trace
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import Client, open_location
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import CodecMismatch, SchemaMismatch
from headwater.persist.maintenance import Maintenance
from headwater.persist.read import Updates
from headwater.persist.stats import Predicate


@dataclass(frozen=True)
class Money:
    """What the application has."""

    owner: str
    cents: int


class MoneyV1:
    """Whole euros: all the first version knew."""

    name = "money"
    version = 1
    schema = pa.schema([pa.field("owner", pa.string()), pa.field("amount", pa.int64())])

    def encode(self, rows: Sequence[Money]) -> pa.Table:
        columns = [[row.owner for row in rows], [row.cents // 100 for row in rows]]
        return pa.table(columns, schema=self.schema)

    def decode(self, table: pa.Table, version: int) -> list[Any]:
        assert version == 1
        return [Money(row["owner"], row["amount"] * 100) for row in table.to_pylist()]


class MoneyV2:
    """Cents, and a column more; ``amount`` means something else than before."""

    name = "money"
    version = 2
    schema = pa.schema([*MoneyV1.schema, pa.field("currency", pa.string())])

    def encode(self, rows: Sequence[Money]) -> pa.Table:
        columns = [[row.owner for row in rows], [row.cents for row in rows], ["EUR"] * len(rows)]
        return pa.table(columns, schema=self.schema)

    def decode(self, table: pa.Table, version: int) -> list[Any]:
        if version == 1:
            assert table.schema.names == ["owner", "amount"], "as version 1 wrote it"
            return MoneyV1().decode(table, 1)
        return [Money(row["owner"], row["amount"]) for row in table.to_pylist()]


class Liar(MoneyV1):
    def encode(self, rows: Sequence[Money]) -> pa.Table:
        return super().encode(rows[1:])


@pytest.fixture
def client() -> Iterator[Client]:
    settings = Settings(maintenance=False, audit_fraction=1.0)
    with open_location(blob=MemoryBlob(), consensus=MemoryConsensus(), settings=settings) as client:
        yield client


ANN, BO = Money("ann", 500), Money("bo", 900)


def test_rows_of_the_application_go_in_and_come_out(client: Client) -> None:
    write, read = client.create_or_load("purse", codec=MoneyV1())
    write.write([(ANN, 1, 1), (BO, 1, 2)]).result()
    write.seal(2).result()
    assert sorted(read.snapshot(1).rows(), key=str) == [(ANN, 1), (BO, 2)]
    assert sorted(client.reader("purse", MoneyV1()).snapshot(1).rows(), key=str) == [
        (ANN, 1),
        (BO, 2),
    ]


@pytest.mark.parametrize("merged", [False, True])
def test_a_newer_codec_reads_and_retracts_what_its_previous_version_wrote(
    client: Client, merged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, old = client.create_or_load("purse", codec=MoneyV1())
    write.compare_and_append([(ANN, 1, 1)], 0, 2).result()
    write.compare_and_append([(BO, 2, 1)], 2, 3).result()
    write, read = client.create_or_load("purse", codec=MoneyV2())
    write.compare_and_append([(ANN, 3, -1), (Money("ann", 501), 3, 1)], 3, 4).result()
    write.compare_and_append([(Money("cy", 7), 4, 1)], 4, 5).result()
    listen = read.listen(0)
    if merged:
        monkeypatch.setattr(trace, "MERGE_AT_LEAST", 2)
        Maintenance(client.core).merge_all()
        (batch,) = client.core.state.collections[write.id].batches
        assert sorted(part.schema for part in batch.parts) == [0, 1], "versions stay apart"
    assert sorted(read.snapshot(2).rows(), key=str) == [(ANN, 1), (BO, 1)]
    now = [(Money("ann", 501), 1), (BO, 1), (Money("cy", 7), 1)]
    assert sorted(read.snapshot(4).rows(), key=str) == now
    # Columns come as the newest version writes them, also where it filters and skips parts.
    few = read.snapshot(4).where(Predicate("amount", ">", 600))
    assert few.to_table().to_pylist() == [
        {"owner": "bo", "amount": 900, "currency": "EUR", "__diff": 1}
    ]
    event = listen.fetch(0)
    assert isinstance(event, Updates)
    assert sorted(event.ok.column("amount").to_pylist()) == [7, 500, 500, 501, 900]
    with pytest.raises(CodecMismatch, match="money v2, not money v1"):
        old.snapshot(4)


def test_an_old_version_does_not_write_or_open_any_more(client: Client) -> None:
    write, _ = client.create_or_load("purse", codec=MoneyV1())
    client.create_or_load("purse", codec=MoneyV2())
    with pytest.raises(CodecMismatch, match="'purse' was written with codec money v2, not money"):
        client.create_or_load("purse", codec=MoneyV1())
    with pytest.raises(CodecMismatch):
        write.write([(ANN, 1, 1)])


def test_another_codec_is_refused(client: Client) -> None:
    client.create_or_load("purse", codec=MoneyV1())
    with pytest.raises(CodecMismatch, match="codec money v1, not arrow v1"):
        client.create_or_load("purse", MoneyV1.schema)
    client.create_or_load("plain", MoneyV1.schema)
    with pytest.raises(CodecMismatch, match="codec arrow v1, not money v1"):
        client.create_or_load("plain", codec=MoneyV1())
    client.create_or_load("purse", codec=MoneyV1())[0].seal(1).result()
    raw = client.reader("purse").snapshot(0)
    assert raw.to_table().num_rows == 0
    with pytest.raises(CodecMismatch, match="codec money v1, not none"):
        raw.rows()


def test_a_codec_that_breaks_its_promise_writes_nothing(client: Client) -> None:
    write, read = client.create_or_load("purse", codec=Liar())
    with pytest.raises(SchemaMismatch, match="codec money v1 made 1 rows"):
        write.write([(ANN, 1, 1), (BO, 1, 1)])
    write.seal(2).result()
    assert read.snapshot(1).rows() == []


def test_plain_rows_see_columns_that_were_added(client: Client) -> None:
    old, old_read = client.create_or_load("t", pa.schema([pa.field("k", pa.int64())]))
    old.compare_and_append([({"k": 1}, 0, 1)], 0, 1).result()
    wider = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
    new, _ = client.create_or_load("t", wider)
    new.compare_and_append([({"k": 2, "v": "b"}, 1, 1)], 1, 2).result()
    old.compare_and_append([({"k": 3}, 2, 1)], 2, 3).result()
    expected = [({"k": k, "v": v}, 1) for k, v in [(1, None), (2, "b"), (3, None)]]
    assert sorted(old_read.snapshot(2).rows(), key=str) == expected


def test_a_column_may_become_nullable(client: Client) -> None:
    strict = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    write, _ = client.create_or_load("t", strict)
    write.compare_and_append([({"k": 1}, 0, 1)], 0, 1).result()
    write, read = client.create_or_load("t", pa.schema([pa.field("k", pa.int64())]))
    write.compare_and_append([({"k": None}, 1, 1)], 1, 2).result()
    assert sorted(read.snapshot(1).rows(), key=str) == [({"k": 1}, 1), ({"k": None}, 1)]
