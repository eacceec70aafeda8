"""Logical replication from a real PostgreSQL: definite, whole transactions, nothing lost.

The server is one of our own with ``wal_level = logical``; each test has its own tables, publication
and slot on it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import psycopg
import pytest

from headwater.collection.schema import type_of
from headwater.storage import keyed_range
from headwater.storage.errors import DefiniteError, TransientError
from headwater.storage.ingestion import Ingestion
from headwater.storage.offsets import NOTHING, Offsets
from headwater.storage.source import Source
from headwater.storage.sources import pg_changes
from headwater.storage.sources.pg_estimate import rows_of
from headwater.storage.sources.pg_types import lsn, lsn_text
from headwater.storage.sources.postgres import (
    LOG,
    Postgres,
    discover,
)
from headwater.testing.unreliable import Crash
from tests.integration import followed
from tests.integration.followed import Location, check_never_torn, check_same, contents
from tests.integration.postgres_world import World
from tests.integration.shared_location import Postgres as Server
from tests.unit.storage.conformance import CHECKS, Rig, canonical, flat

pytestmark = pytest.mark.server

SEED = 20261115


@pytest.fixture(scope="module")
def server(logical: Server) -> Server:
    return logical


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    world = World(server)
    yield world
    world.close()


@pytest.fixture
def keyed(server: Server) -> Iterator[World]:
    world = World(server, keyed=True)
    yield world
    world.close()


@pytest.fixture(params=["rows", "keys"])
def either(server: Server, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(server, keyed=request.param == "keys")
    yield world
    world.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(world: World, check: Callable[[Rig, Random], None]) -> None:
    print(f"seed {SEED}")
    check(world, Random(SEED))


# ---- ingested --------------------------------------------------------------------------------


def test_snapshot_then_changes(either: World) -> None:
    followed.snapshot_then_changes(either, SEED)


def test_killed_at_random_effects(either: World) -> None:
    followed.killed_at_random_effects(either, SEED)


def test_the_server_is_stopped_and_started(world: World, server: Server) -> None:
    location, random = Location(world), Random(SEED)
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        world.grow(random)
        world.connection.close()
        stopping = threading.Thread(target=server.stop)
        stopping.start()  # It waits for whoever follows its log to let go.
        with pytest.raises(TransientError):  # noqa: PT012 - at any of them
            while True:
                location.clock.set(location.clock.now_ms() + 1)
                running.tick(location.clock.now_ms())
        stopping.join()
        server.start()
        world.connection = psycopg.connect(world.dsn, autocommit=True)
        location.tick(running)
        check_same(client, world)
        check_never_torn(client, world)
        running.stop()


def test_the_server_is_killed_under_load(world: World) -> None:
    followed.server_killed_under_load(world, SEED, 4)


def test_about_how_many_rows_there_are(world: World) -> None:
    """Of tables that nobody ever analysed, of one that has grown since, and of partitions."""
    source = world.source()
    assert source.estimate(NOTHING) == 10
    world.execute(f"ANALYZE {world.name}.a")
    rows = "SELECT n, 1, repeat('x', 500) FROM generate_series(6, 20000) n"
    world.execute(f"INSERT INTO {world.name}.a {rows}")
    assert 10_000 < source.estimate(NOTHING) < 40_000
    world.execute(f"INSERT INTO {world.name}.b {rows}")
    assert 20_000 < source.estimate(NOTHING) < 80_000
    world.execute(f"TRUNCATE {world.name}.a, {world.name}.b")
    world.execute(f"CREATE TABLE {world.name}.p (n int) PARTITION BY LIST (n)")
    world.execute(f'CREATE TABLE {world.name}."P 1" PARTITION OF {world.name}.p DEFAULT')
    world.execute(f"INSERT INTO {world.name}.p SELECT generate_series(1, 7)")
    assert rows_of(world.connection, [f"{world.name}.{table}" for table in "abp"]) == 7


def test_what_is_written_between_probe_and_snapshot_is_not_in_it(world: World) -> None:
    source, random = world.source(), Random(SEED)
    upper = source.probe()
    before = world.contents("a")
    for _ in range(4):
        world.grow(random)
        world.execute(f"INSERT INTO {world.name}.a VALUES ({1000 + _}, 0, 'late')")
    found = canonical(flat(source.read(NOTHING, upper)), places=False)
    rows = Counter({key: n for key, n in found.items() if key.startswith(f"{world.name}.a ")})
    assert sum(rows.values()) == sum(before.values()) == 5
    assert not [row for row in rows if "late" in row]
    source.close()


def test_truncate_retracts_everything(world: World) -> None:
    location, random = Location(world), Random(SEED)
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        world.grow(random)
        with world.connection.transaction():
            world.execute(f"INSERT INTO {world.name}.a VALUES (77, 7, 'before')")
            world.execute(f"TRUNCATE {world.name}.a")
            world.execute(f"INSERT INTO {world.name}.a VALUES (78, 8, 'after')")
        world.execute(f"INSERT INTO {world.name}.a VALUES (79, 9, 'later')")
        location.tick(running)
        check_same(client, world)
        world.execute(f"TRUNCATE {world.name}.a, {world.name}.b")
        location.tick(running)
        assert contents(client, f"{world.name}.a") == contents(client, f"{world.name}.b") == {}
        running.stop()


def test_large_values_that_do_not_change_are_kept(world: World) -> None:
    """Stored out of line, they are not sent with an update."""
    location = Location(world)
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        world.execute(f"ALTER TABLE {world.name}.a ALTER note SET STORAGE EXTERNAL")
        world.execute(f"INSERT INTO {world.name}.a VALUES (50, 0, repeat('large', 5000))")
        location.tick(running)
        world.execute(f"UPDATE {world.name}.a SET money = 5 WHERE id = 50")
        location.tick(running)
        check_same(client, world)
        world.execute(f"DELETE FROM {world.name}.a WHERE id = 50")
        location.tick(running)
        check_same(client, world)
        running.stop()


def test_an_idle_database_pins_no_log(world: World) -> None:
    """Others write; our tables do not; the slot follows all the same, and by whole positions."""
    location = Location(world)
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        before = world.confirmed()
        world.execute(f"CREATE TABLE public.{world.name}_noise AS SELECT generate_series(1, 20000)")
        location.tick(running)
        location.tick(running)
        durable = running.resumption.offsets[LOG]
        world.await_slot(f"confirmed_flush_lsn >= '{lsn_text(durable)}'")
        assert world.confirmed() - before > 500_000
        assert world.confirmed() == durable
        running.stop()


# ---- rows that go are named by their key ----------------------------------------------------


def test_the_first_snapshot_of_one_that_died_is_taken_again(
    keyed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had bound cannot be had any more; nobody has seen it, so the next one binds again."""
    location, random = Location(keyed), Random(SEED)
    append = Ingestion._append_range
    with location.open() as client:
        running = location.start(client)

        def dies(self: Ingestion) -> bool:
            raise Crash

        monkeypatch.setattr(Ingestion, "_append_range", dies)
        with pytest.raises(Crash):
            location.tick(running)
        monkeypatch.setattr(Ingestion, "_append_range", append)
        keyed.processes_die()
        keyed.grow(random)
        again = location.start(client)
        location.tick(again)
        check_same(client, keyed)
        keyed.grow(random)
        location.tick(again)
        check_same(client, keyed)
        check_never_torn(client, keyed)
        again.stop()


@pytest.mark.parametrize("at_once", [1, 1_000])
def test_changes_by_key_within_one_range(
    keyed: World, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Keys that change, rows that come and go and come, large values that were not sent.

    Also where each is looked up in what was written of the range before it.
    """
    monkeypatch.setattr(keyed_range, "CHANGES_AT_ONCE", at_once)
    monkeypatch.setattr(pg_changes, "ROWS_AT_ONCE", at_once)
    large = "".join(str(Random(n).random()) for n in range(2_000))
    keyed.execute(f"UPDATE {keyed.name}.a SET note = '{large}' WHERE id <= 3")
    location, a = Location(keyed), f"{keyed.name}.a"
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        check_same(client, keyed)
        keyed.execute(f"UPDATE {a} SET money = 7 WHERE id = 1")
        keyed.execute(f"UPDATE {a} SET id = 71 WHERE id = 2")
        keyed.execute(f"UPDATE {a} SET id = 72, money = 3 WHERE id = 71")
        keyed.execute(f"DELETE FROM {a} WHERE id = 4; INSERT INTO {a} VALUES (4, 1, 'again')")
        keyed.execute(f"INSERT INTO {a} VALUES (8, 1, NULL); DELETE FROM {a} WHERE id = 8")
        keyed.execute(f"UPDATE {a} SET id = id + 100")
        location.tick(running)
        check_same(client, keyed)
        keyed.execute(f"INSERT INTO {a} VALUES (1, 1, 'x')")
        keyed.execute(f"UPDATE {a} SET money = 9 WHERE id = 101")
        keyed.execute(f"TRUNCATE {a}; INSERT INTO {a} VALUES (1, 2, 'y'), (2, 2, '{large}')")
        keyed.execute(f"UPDATE {a} SET money = 5 WHERE id = 2")
        location.tick(running)
        check_same(client, keyed)
        assert sum(keyed.contents("a").values()) == 2
        keyed.execute(f"ALTER TABLE {a} REPLICA IDENTITY FULL; UPDATE {a} SET id = id + 10")
        location.tick(running)
        check_same(client, keyed)
        running.stop()


def test_a_key_that_becomes_another_is_told(keyed: World) -> None:
    source = keyed.source()
    source.probe()
    source.commit(source.probe())
    lower = source.probe()
    keyed.execute(f"ALTER TABLE {keyed.name}.a DROP CONSTRAINT a_pkey, ADD PRIMARY KEY (id, money)")
    keyed.execute(f"UPDATE {keyed.name}.a SET note = 'x' WHERE id = 1")
    with pytest.raises(DefiniteError, match=r"its key was \['id'\], and is \['id', 'money'\]"):
        read_all(source, lower)
    source.close()


def test_values_of_every_type(server: Server, world: World) -> None:
    world.execute(
        f"CREATE TABLE {world.name}.v (i2 smallint, i8 bigint, f4 real, f8 float8, b bool, "
        "n numeric, d date, t timestamp, z timestamptz, y bytea, j jsonb, u uuid, v varchar(9), "
        "a int[])"
    )
    world.execute(f"ALTER TABLE {world.name}.v REPLICA IDENTITY FULL")
    row = (
        f"INSERT INTO {world.name}.v VALUES (-1, 9007199254740993, 0.1, 'NaN', true, 1.5, "
        "'2024-02-29', '2024-01-02 03:04:05.678', '2024-01-02 03:04:05+05', '\\xff00', "
        "'{\"k\": 1}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'ü', '{1,2}')"
    )
    world.execute(row)
    odd = (
        f"INSERT INTO {world.name}.v (v) "
        "VALUES (''), ('\\N'), ('NULL'), (E'a\\nb'), ('\"q\",'), (E'\\r'), (E'\\\\.')"
    )
    world.execute(odd)
    world.execute(f"INSERT INTO {world.name}.v DEFAULT VALUES")
    tables = {f"{world.name}.v": discover(server.dsn, world.name)[f"{world.name}.v"]}
    (schema,) = tables.values()
    assert type_of(schema.field("u")).name == "uuid", "and so it can be compared with one"
    source = Postgres(world.dsn, world.name, world.name, tables)
    upper = source.probe()
    snapshot = [dict(payload) for *_, payload in flat(source.read(NOTHING, upper))]
    world.execute(row)
    world.execute(odd)
    world.execute(f"INSERT INTO {world.name}.v DEFAULT VALUES")
    changes = [dict(payload) for *_, payload in flat(source.read(upper, source.probe()))]
    assert repr(snapshot) == repr(changes), "a copied row and a replicated one are the same"
    first = snapshot[0]
    assert (first["i2"], first["i8"], first["b"], first["y"]) == (-1, 2**53 + 1, True, b"\xff\x00")
    assert first["z"].isoformat() == "2024-01-01T22:04:05+00:00"
    assert (first["v"], first["a"]) == ("ü", "{1,2}")
    assert [row["v"] for row in snapshot[1:-1]] == ["", "\\N", "NULL", "a\nb", '"q",', "\r", "\\."]
    assert set(snapshot[-1].values()) == {None, 1}
    lower = source.probe()
    world.execute(f"ALTER TABLE {world.name}.v ALTER u TYPE text")
    world.execute(f"INSERT INTO {world.name}.v (u) VALUES ('no uuid')")
    with pytest.raises(DefiniteError, match="it was a uuid, and is one no longer upstream"):
        read_all(source, lower)
    source.close()


# ---- bad input -------------------------------------------------------------------------------


def read_all(source: Source, lower: Offsets) -> None:
    flat(source.read(lower, source.probe()))


def test_a_missing_publication_stalls_with_the_remedy(world: World) -> None:
    source = Postgres(world.dsn, "nowhere", world.name, world.tables)
    with pytest.raises(TransientError, match="CREATE PUBLICATION nowhere FOR TABLE"):
        source.probe()
    source.close()


def test_a_table_that_does_not_log_its_rows_stalls_with_the_remedy(world: World) -> None:
    world.execute(f"ALTER TABLE {world.name}.a REPLICA IDENTITY DEFAULT")
    source = world.source()
    with pytest.raises(TransientError, match=r"ALTER TABLE .*\.a REPLICA IDENTITY FULL"):
        source.probe()
    source.close()


def test_a_server_that_is_not_there_stalls(world: World) -> None:
    source = Postgres("host=127.0.0.1 port=1 dbname=none", "p", "s", world.tables)
    with pytest.raises(TransientError, match="connection"):
        source.probe()


def test_a_column_added_upstream_is_ignored(world: World) -> None:
    location = Location(world)
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        world.execute(f"ALTER TABLE {world.name}.a ADD more int")
        world.execute(f"INSERT INTO {world.name}.a VALUES (60, 0, 'x', 7)")
        location.tick(running)
        found = contents(client, f"{world.name}.a")
        assert found == Counter(row[:3] for row in world.contents("a"))
        running.stop()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("DROP note", "column 'note': it was dropped or renamed upstream"),
        ("RENAME note TO remark", "column 'note': it was dropped or renamed upstream"),
        ("ALTER note TYPE bytea USING NULL", "column 'note': it was string, and is binary"),
    ],
)
def test_an_incompatible_change_names_table_and_column(world: World, change: str, why: str) -> None:
    source = world.source()
    lower = source.probe()
    world.execute(f"ALTER TABLE {world.name}.a {change}")
    world.execute(f"UPDATE {world.name}.a SET money = 1 WHERE id = 1")
    with pytest.raises(DefiniteError, match=rf"table '{world.name}\.a', {why}"):
        read_all(source, lower)
    source.close()


def test_a_slot_that_is_past_us_is_definite(world: World) -> None:
    location, random = Location(world), Random(SEED)
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        world.grow(random)
        world.released()
        world.execute(f"SELECT pg_replication_slot_advance('{world.name}', pg_current_wal_lsn())")
        with pytest.raises(DefiniteError, match="let nobody else use or drop its slot"):
            running.tick(location.clock.now_ms() + 10)
        running.source.close()


def test_a_slot_that_was_dropped_is_definite(world: World) -> None:
    location = Location(world)
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        with pytest.raises(psycopg.errors.ObjectInUse):  # While we are there, nobody can.
            world.execute(f"SELECT pg_drop_replication_slot('{world.name}')")
        world.released()
        world.execute(f"SELECT pg_drop_replication_slot('{world.name}')")
        with pytest.raises(DefiniteError, match="does not exist any more"):
            running.tick(location.clock.now_ms() + 10)
        running.source.close()


def test_a_slot_whose_log_was_not_kept_is_definite(world: World) -> None:
    """We were away, and the server was not to keep more than so much for us."""
    location = Location(world)
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        world.released()
        world.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        world.execute("SELECT pg_reload_conf()")
        try:
            while True:
                world.execute(f"UPDATE {world.name}.a SET money = money + 1")
                world.execute("SELECT pg_switch_wal()")
                world.execute("CHECKPOINT")
                query = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s"
                row = world.connection.execute(query, (world.name,)).fetchone()
                if row == ("lost",):
                    break
        finally:
            world.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
            world.execute("SELECT pg_reload_conf()")
        with pytest.raises(DefiniteError, match=r"was invalidated.*drop the source and create"):
            running.tick(location.clock.now_ms() + 10)
        assert sum(contents(client, f"{world.name}.a").values()) == 5, "what is durable is there"
        running.source.close()


@pytest.mark.parametrize("probed", [True, False])
def test_a_table_that_was_made_again_is_another_table(world: World, probed: bool) -> None:
    """Its old rows went, and no log says so."""
    source = world.source()
    lower = source.probe()
    world.execute(f"DROP TABLE {world.name}.a")
    world.execute(f"CREATE TABLE {world.name}.a (id int PRIMARY KEY, money numeric, note text)")
    world.execute(f"ALTER TABLE {world.name}.a REPLICA IDENTITY FULL")
    world.execute(f"INSERT INTO {world.name}.a VALUES (1, 7)")
    end = world.connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert end is not None
    upper = Offsets({LOG: lsn(end[0])})  # As if it happened after a probe.
    with pytest.raises(DefiniteError, match=rf"'{world.name}\.a' was dropped upstream and made"):
        _ = source.probe() if probed else flat(source.read(lower, upper))


def test_positions_as_text() -> None:
    assert lsn("16/B374D848") == 0x16_B374D848
    assert lsn_text(lsn("16/B374D848")) == "16/B374D848"
