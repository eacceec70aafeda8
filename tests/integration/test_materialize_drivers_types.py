"""Values of every type go into every authoritative endpoint and come back as they were."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.base.errors import Determinate
from headwater.base.ids import GlobalId
from headwater.materialize.changes import changes
from headwater.materialize.checkpoint import Position
from headwater.materialize.combine import by_key
from headwater.materialize.definition import Binding
from headwater.materialize.delivery import Delivery, Transaction
from headwater.materialize.documents import NotARow
from headwater.materialize.protocol import messages as m
from headwater.materialize.selection import FieldRefused
from headwater.materialize.transport.in_process import InProcess
from headwater.materialize.tuples import pack
from headwater.materialize.wire.framing import Codec
from tests.integration import driven
from tests.integration.driven import BINDING, FULL, Row, opened, spec_of, transact, updates_of
from tests.integration.every_type import EVERYTHING, values
from tests.integration.materialize_places import (
    NAME,
    Memory,
    Place,
    PostgresPlace,
    loading,
    prepared,
)
from tests.integration.shared_location import Postgres

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("sqlite_without_fsync")]

place = driven.place


VALUES = values(7, "-9007199254740993")


@pytest.mark.parametrize("key", [f.name for f in EVERYTHING if f.name not in ("l", "j")])
def test_every_type_goes_there_and_comes_back(place: Place, key: str) -> None:
    binding = Binding("orders", GlobalId(1), "target", (key,))
    spec = prepared(place, [binding], [EVERYTHING])
    bound = loading(binding, EVERYTHING)
    nulls = tuple(VALUES[at] if name == key else None for at, name in enumerate(EVERYTHING.names))
    for row in (VALUES, nulls):
        with closing(place.make()) as driver:
            stream = InProcess(driver)
            delivery = Delivery(stream, spec, "v1", FULL, Memory(), source=NAME)
            exists = delivery.position is not None
            updates = updates_of(EVERYTHING, (row, 1, 1))
            (store,) = [changes(0, [key], updates, 2, FULL)]
            store = m.StoreMany(0, store.keys_packed, store.rows, pa.array([exists]), store.delete)
            delivery.transact(Transaction.of([store], Position(2)))
            loaded: list[m.Loaded | m.LoadedMany] = []

            def keep(
                found: Any, loaded: list[m.Loaded | m.LoadedMany] = loaded
            ) -> list[m.StoreMany]:
                loaded += found.get(0, ())
                return []

            load = m.LoadMany(0, store.keys_packed)
            delivery.transact(Transaction(Position(3), keep, (load,)))
            (document,) = by_key(bound.loaded_rows(loaded)).items()
            wanted = by_key(bound.loaded_rows([m.LoadedMany(0, store.rows)]))
            assert wanted[store.keys_packed[0].as_py()].keys() == {*EVERYTHING.names}
            assert dict([document]) == wanted


def test_numbers_are_numbers_where_the_endpoint_has_them(place: Place) -> None:
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("w", pa.decimal128(38, 0))])
    spec = prepared(place, [BINDING], [schema])
    delivery = opened(place, spec)
    rows = [((k, Decimal(10**k)), 1, 1) for k in (1, 2)]
    store = changes(0, ["k"], updates_of(schema, *rows), 2, FULL)
    delivery.transact(Transaction.of([store], Position(2)))
    assert place.select(["k", "w"], "target") == [(1, 10), (2, 100)]
    huge = changes(0, ["k"], updates_of(schema, ((3, Decimal(10**30)), 2, 1)), 3, FULL)
    if place.driver == "sqlite":
        with pytest.raises(Determinate, match="too large"):
            delivery.transact(Transaction.of([huge], Position(3)))
    else:
        delivery.transact(Transaction.of([huge], Position(3)))
        assert place.select(["w"], "target")[-1] == (Decimal(10**30),)


def test_decimals_of_all_sizes(postgres: Postgres) -> None:
    """Each digit is where it was, also if groups of them are zero."""
    place, random = PostgresPlace(postgres.dsn), Random(1)
    kinds = [(38, 0), (38, 9), (20, 3), (5, 5), (38, 38), (9, 4)]
    names = [f"d{number}" for number in range(len(kinds))]
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            *(
                pa.field(name, pa.decimal128(*kind))
                for name, kind in zip(names, kinds, strict=True)
            ),
        ]
    )

    def drawn(precision: int, scale: int) -> Decimal:
        digits = [random.choice((0, 0, 9, random.randrange(10))) for _ in range(precision)]
        kept = (0,) * (precision // 2) + tuple(digits[precision // 2 :])
        return Decimal((random.randrange(2), random.choice((tuple(digits), kept)), -scale))

    rows = [(k, *(drawn(*kind) for kind in kinds)) for k in range(50)]
    delivery = opened(place, prepared(place, [BINDING], [schema]))
    store = changes(0, ["k"], updates_of(schema, *((row, 1, 1) for row in rows)), 2, FULL)
    delivery.transact(Transaction.of([store], Position(2)))
    delivery.end()
    assert sorted(place.select(["k", *names], "target")) == rows
    place.close()


@pytest.mark.parametrize("wire", [None, Codec.JSON], ids=["in process", "json"])
def test_nothing_is_rounded(postgres: Postgres, wire: Codec | None) -> None:
    """A table made by somebody else has fewer digits: a value is there as it is, or not at all."""
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            pa.field("d", pa.decimal128(20, 3)),
            pa.field("at", pa.timestamp("us")),
        ]
    )
    noon = dt.datetime(2026, 1, 1, 12, 0, 0, 123_456)  # noqa: DTZ001 - local, as the column is
    place = PostgresPlace(postgres.dsn, wire)
    place.execute("CREATE TABLE target (k bigint PRIMARY KEY, d numeric(7,1), at timestamp(3))")
    with pytest.raises(FieldRefused, match=r"at.*timestamp\(3\)"):
        prepared(place, [BINDING], [schema])
    place.execute("ALTER TABLE target ALTER at TYPE timestamp(6)")
    delivery = opened(place, prepared(place, [BINDING], [schema]))

    def transact(upper: int, *triples: tuple[Row, int, int]) -> None:
        store = changes(0, ["k"], updates_of(schema, *triples), upper, FULL)
        delivery.transact(Transaction.of([store], Position(upper)))

    first, second = (1, Decimal("12.300"), noon), (1, Decimal("45.600"), noon)
    transact(2, (first, 1, 1))
    transact(3, (first, 2, -1), (second, 2, 1))
    with pytest.raises(Determinate, match=r"column d does not fit numeric\(7,1\)"):
        transact(4, ((2, Decimal("12.340"), noon), 3, 1))
    place.kill()
    assert place.select(["k", "d", "at"], "target") == [(1, Decimal("45.6"), noon)]
    place.close()


def test_a_value_that_does_not_fit_changes_nothing(place: Place) -> None:
    delivery = opened(place, spec_of(place))
    transact(delivery, 2, ((1, "a", 1), 1, 1))
    huge = pa.table({"k": [2], "v": ["b"], "n": pa.array([2**63], pa.uint64())})
    no = pa.array([False])
    store = m.StoreMany(0, pa.array([pack((2,))], pa.large_binary()), huge, no, no)
    with pytest.raises((Determinate, NotARow), match=r"too (large|big)|not in range"):
        delivery.transact(Transaction.of([store], Position(3)))
    place.kill()
    delivery = opened(place, spec_of(place))
    assert delivery.position == Position(2)
    assert place.select(["k"], "target") == [(1,)]
