"""The binary log of a real MariaDB: definite, whole transactions, nothing lost.

The server is one of our own; each test has its own schema on it. ``test_storage_mysql8.py`` has the
same of a MySQL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from random import Random

import pytest

from headwater.adapter.errors import AdapterError
from headwater.base.clock import SystemClock
from headwater.storage.errors import TransientError
from headwater.storage.offsets import NOTHING
from headwater.storage.sources import my_changes, my_copy
from headwater.storage.sources.my_discover import discover
from headwater.storage.sources.mysql import MySql
from headwater.testing.sql_server import SqlServer
from tests.integration import followed
from tests.integration.docs_pages import typed
from tests.integration.followed import Location, check_same, contents
from tests.integration.mysql_world import World
from tests.unit.storage.conformance import CHECKS, Rig, canonical, flat

pytestmark = pytest.mark.server

SEED = 20261116


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(world: World, check: Callable[[Rig, Random], None]) -> None:
    print(f"seed {SEED}")
    check(world, Random(SEED))


# ---- ingested --------------------------------------------------------------------------------


def test_snapshot_then_changes(world: World) -> None:
    followed.snapshot_then_changes(world, SEED)


def test_killed_at_random_effects(world: World) -> None:
    followed.killed_at_random_effects(world, SEED)


def test_the_server_is_killed_under_load(world: World) -> None:
    followed.server_killed_under_load(world, SEED, 3)


def test_what_is_written_between_probe_and_snapshot_is_not_in_it(world: World) -> None:
    source, random = world.source(), Random(SEED)
    upper = source.probe()
    before = world.contents("a")
    for n in range(4):
        world.grow(random)
        world.execute(f"INSERT INTO {world.name}.a VALUES ({1000 + n}, 0, 'late')")
    found = canonical(flat(source.read(NOTHING, upper)), places=False)
    rows = Counter({key: n for key, n in found.items() if key.startswith(f"{world.name}.a ")})
    assert sum(rows.values()) == sum(before.values()) == 5
    assert not [row for row in rows if "late" in row]


def test_truncate_retracts_everything(world: World) -> None:
    location, random, a = Location(world), Random(SEED), f"{world.name}.a"
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        world.grow(random)
        world.execute(f"INSERT INTO {a} VALUES (77, 7, 'before')")
        world.execute(f"USE {world.name}")
        world.execute("/* all of it */ TRUNCATE `a`")
        world.execute(f"INSERT INTO {a} VALUES (78, 8, 'after')")
        location.tick(running)
        check_same(client, world)
        assert sum(contents(client, a).values()) == 1
        world.execute(f"TRUNCATE TABLE {world.name} . a")
        location.tick(running)
        assert contents(client, a) == {}
        running.stop()


def test_what_was_not_committed_never_happened(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that changed a table without transactions is logged with its rollback."""
    location, name = Location(world), world.name
    if not world.maria:
        pytest.skip("MySQL logs what such a table got at once, and nothing of the rest")
    world.execute(f"CREATE TABLE {name}.m (id int) ENGINE = MyISAM")
    with location.open() as client:
        running = location.start(client)
        location.tick(running)

        def taken_back() -> None:
            with world.connection.cursor() as cursor:
                cursor.execute("BEGIN")
                cursor.execute(f"UPDATE {name}.a SET money = 0")
                cursor.execute(f"CREATE TEMPORARY TABLE {name}.x (id int)")
                cursor.execute(f"INSERT INTO {name}.m VALUES (1)")
                cursor.execute(f"DROP TEMPORARY TABLE {name}.x")
                cursor.execute("ROLLBACK")

        taken_back()
        location.tick(running)
        check_same(client, world)
        # So large that a part of it was handed over before its end was seen.
        monkeypatch.setattr(my_changes, "ROWS_AT_ONCE", 3)
        taken_back()
        world.execute(f"INSERT INTO {name}.a VALUES (9, 0, 'after')")
        with pytest.raises(TransientError, match="reading again without it"):
            location.tick(running)
        location.tick(running)
        check_same(client, world)
        running.stop()


def test_large_transactions_and_values(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than a batch in one transaction; values whose lengths take several bytes."""
    monkeypatch.setattr(my_changes, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(my_copy, "ROWS_AT_ONCE", 3)
    world.execute(f"ALTER TABLE {world.name}.b MODIFY note longtext")
    world.execute(f"UPDATE {world.name}.b SET note = REPEAT('x', 100000) WHERE id = 1")
    world.execute(f"UPDATE {world.name}.b SET note = REPEAT('x', 1000) WHERE id = 2")
    location = Location(world)
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        check_same(client, world)
        rows = ", ".join(f"({n}, 0, 'n')" for n in range(100, 150))
        world.execute(
            f"INSERT INTO {world.name}.a VALUES {rows}",
            f"DELETE FROM {world.name}.a WHERE id > 120",
            f"UPDATE {world.name}.b SET note = CONCAT(note, 'y') WHERE id = 1",
        )
        location.tick(running)
        check_same(client, world)
        running.stop()


def test_compressed_events(world: World) -> None:
    location = Location(world)
    setting = "log_bin_compress" if world.maria else "binlog_transaction_compression"
    world.execute(f"SET GLOBAL {setting} = ON")
    if not world.maria:
        world.execute(f"SET SESSION {setting} = ON")
    try:
        with location.open() as client:
            running = location.start(client)
            location.tick(running)
            world.execute(f"INSERT INTO {world.name}.a VALUES (50, 0, REPEAT('many', 500))")
            world.execute(f"UPDATE {world.name}.a SET money = 1 WHERE id = 50")
            location.tick(running)
            check_same(client, world)
            world.execute(f"TRUNCATE {world.name}.a /* {'much ' * 100} */")
            location.tick(running)
            check_same(client, world)
            running.stop()
    finally:
        world.execute(f"SET GLOBAL {setting} = OFF")


def test_values_of_every_type(world: World) -> None:
    table = f"{world.name}.v"
    world.execute("SET sql_mode = '', time_zone = '+05:00'")
    world.execute(
        f"CREATE TABLE {table} (i1 tinyint, u1 tinyint unsigned, i2 smallint, u2 smallint unsigned,"
        " i3 mediumint, u3 mediumint unsigned, i4 int, u4 int unsigned zerofill, i8 bigint,"
        " u8 bigint unsigned, n decimal(12,2), n65 decimal(65,30), n9 decimal(9,9), f float,"
        " g double, b1 bit(1), b9 bit(9), b64 bit(64), d date, dt datetime, dt3 datetime(3),"
        " dt6 datetime(6), ts timestamp NULL, ts6 timestamp(6) NULL, t time, t2 time(2),"
        " t4 time(4), t6 time(6), y year, c char(10), cl char(10) CHARACTER SET latin1,"
        " v varchar(20),"
        " vl varchar(300) CHARACTER SET latin1, v16 varchar(20) CHARACTER SET utf16,"
        " tx text CHARACTER SET cp1251, lt longtext, bi binary(8), vb varbinary(20), bl blob,"
        " e enum('a','b','ü'), el enum('x','ü') CHARACTER SET latin1, s set('p','q','r'), j json,"
        " geo geometry, big char(255) CHARACTER SET utf8mb4, gone int AS (i4 + 1) VIRTUAL,"
        " kept int AS (i4 + 2) STORED)"
    )
    rows = (
        f"INSERT INTO {table} SET i1 = -128, u1 = 255, i2 = -32768, u2 = 65535, i3 = -8388608, "
        "u3 = 16777215, i4 = -2147483648, u4 = 4294967295, i8 = -9223372036854775808, "
        "u8 = 18446744073709551615, n = -1234567890.12, n65 = -1.5, n9 = 0.123456789, f = 0.1, "
        "g = 0.1, b1 = 1, b9 = 257, b64 = 18446744073709551615, d = '2024-02-29', "
        "dt = '2024-01-02 03:04:05', dt3 = '2024-01-02 03:04:05.678', "
        "dt6 = '1024-01-02 03:04:05.678901', ts = '2024-01-02 03:04:05', "
        "ts6 = '2024-01-02 03:04:05.000001', t = '-838:59:59', t2 = '-00:00:00.50', "
        "t4 = '100:00:01.2345', t6 = '-12:34:56.789012', y = 2024, c = 'abc  ', cl = 'ü€\u0081', "
        "v = ' x ', vl = 'é€', v16 = 'Ω𝄞', tx = 'Привет', lt = REPEAT('l', 300), bi = x'0100ff', "
        "vb = x'00ff00', bl = x'ff', e = 'ü', el = 'ü', s = 'p,r', j = '{\"k\":  1}', "
        "geo = POINT(1, 2), big = REPEAT('x', 255);"
        f"INSERT INTO {table} (v) VALUES (''), ('\\\\N'), ('NULL'), ('a\nb'), ('\\0');"
        f"INSERT INTO {table} SET d = '0000-00-00', dt = '0000-00-00 00:00:00', "
        "ts = '0000-00-00 00:00:00', y = 0, e = 'none', s = '', bi = '', f = 1e-40, "
        "g = 1.7976931348623157e308, n = -0.01, t = '00:00:00';"
        f"INSERT INTO {table} SET d = '2024-00-00', dt = '2024-02-00 10:00:00', f = 16777217, "
        "g = -2.2250738585072014e-308, n = 0;"
        f"INSERT INTO {table} () VALUES ()"
    ).split(";")
    world.execute(*rows)
    tables = {table: discover(world.server.config).tables[table]}
    source = MySql(world.server.config, tables)
    world.sources.append(source)
    upper = source.probe()
    snapshot = [dict(payload) for *_, payload in flat(source.read(NOTHING, upper))]
    world.execute(*rows)
    changes = [dict(payload) for *_, payload in flat(source.read(upper, source.probe()))]
    assert repr(snapshot) == repr(changes), "a copied row and a logged one are the same"
    first = snapshot[0]
    assert (first["i8"], first["u8"], first["b1"], first["b9"]) == (-(2**63), 2**64 - 1, True, 257)
    assert (first["u4"], first["kept"], "gone" in first) == (2**32 - 1, 2 - 2**31, False)
    assert first["ts"].isoformat() == "2024-01-01T22:04:05+00:00"
    assert first["dt6"].isoformat() == "1024-01-02T03:04:05.678901"
    assert [first[name] for name in ("t", "t2", "t6")] == [
        "-838:59:59",
        "-00:00:00.50",
        "-12:34:56.789012",
    ]
    assert [first[name] for name in ("c", "cl", "v", "v16")] == ["abc", "ü€\u0081", " x ", "Ω𝄞"]
    assert [first[name] for name in ("tx", "e", "el", "s")] == ["Привет", "ü", "ü", "p,r"]
    assert (first["bi"], first["vb"]) == (b"\x01\0\xff\0\0\0\0\0", b"\0\xff\0")
    assert [row["v"] for row in snapshot[1:6]] == ["", "\\N", "NULL", "a\nb", "\0"]
    none = snapshot[6]
    assert [none[name] for name in ("d", "dt", "ts", "y", "e", "s")] == [None] * 3 + [0, "", ""]
    assert snapshot[7]["d"] is snapshot[7]["dt"] is None
    assert set(snapshot[-1].values()) == {None, 1}


# ---- by SQL ----------------------------------------------------------------------------------


def test_followed_by_sql(world: World) -> None:
    name, config = world.name, world.server.config
    password = config["password"].replace("'", "''")
    with SqlServer(SystemClock()) as server:
        sql = server.session()
        sql(f"CREATE SECRET pw AS '{password}'")
        address = f"HOST '127.0.0.1', PORT {world.server.port}, USER 'root'"
        with pytest.raises(AdapterError, match="there is no SSL MODE 'maybe'"):
            sql(f"CREATE CONNECTION my TO MYSQL ({address}, SSL MODE 'maybe')")
        sql(f"CREATE CONNECTION my TO MYSQL ({address}, PASSWORD SECRET pw, SSL MODE 'disabled')")
        sql("VALIDATE CONNECTION my")
        with pytest.raises(AdapterError, match=r'no table "nowhere\.a" upstream'):
            sql("CREATE SOURCE s FROM MYSQL CONNECTION my FOR TABLES (nowhere.a)")
        with pytest.raises(AdapterError, match="no tables upstream"):
            sql("CREATE SOURCE s FROM MYSQL CONNECTION my FOR SCHEMAS (nowhere)")
        world.execute(f"CREATE TABLE {name}.m (id int) ENGINE = MyISAM")
        with pytest.raises(AdapterError, match="cannot be followed") as refused:
            sql(f"CREATE SOURCE s FROM MYSQL CONNECTION my FOR SCHEMAS ({name})")
        assert f"ALTER TABLE {name}.m ENGINE = InnoDB" in str(refused.value.hint)
        sql(f"CREATE SOURCE s FROM MYSQL CONNECTION my FOR TABLES ({name}.a AS one, {name}.b)")
        world.execute(f"DROP TABLE {name}.m")
        sql(f"CREATE SCHEMA x; CREATE SOURCE x.t FROM MYSQL CONNECTION my FOR SCHEMAS ({name})")
        server.ingestions.tick()
        assert sql("SELECT count(*), sum(money) FROM one") == [(5, Decimal(500))]
        world.execute(
            f"UPDATE {name}.a SET money = money - 30 WHERE id = 1",
            f"UPDATE {name}.b SET money = money + 30 WHERE id = 1",
        )
        server.ingestions.tick()
        sums = "SELECT (SELECT sum(money) FROM one), (SELECT sum(money) FROM b)"
        assert sql(sums) == [(Decimal(470), Decimal(530))]
        assert sql("SELECT count(*) FROM x.a") == [(5,)]
        kinds = sql("SELECT DISTINCT source_kind, reliance FROM hw_sources")
        assert kinds == [("mysql", "retained upstream")]
        sql("DROP SOURCE x.t; DROP SOURCE s")
        # docs/sources/mysql.md, with this server and these tables.
        ((_, page),) = typed("docs/sources/mysql.md")
        page = page.replace("SECRET pw", "SECRET their_pw").replace("'…'", f"'{password}'")
        page = page.replace("CONNECTION my", "CONNECTION theirs")
        page = page.replace("'required'", "'disabled'")
        page = page.replace("HOST 'db', USER 'headwater'", address)
        sql(page.replace("shop.orders", f"{name}.a").replace("shop.customers", f"{name}.b"))
        sql("DROP SOURCE shop")
