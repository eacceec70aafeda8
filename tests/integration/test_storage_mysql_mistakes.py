"""What a MariaDB can do wrong to whoever follows it: each is told, with the remedy."""

from __future__ import annotations

import pytest

from headwater.storage.errors import DefiniteError, TransientError
from headwater.storage.sources.my_discover import discover
from headwater.storage.sources.mysql import MySql
from tests.integration.followed import Location, contents, read_all
from tests.integration.mysql_world import World
from tests.unit.storage.conformance import flat

pytestmark = pytest.mark.server


def test_a_server_that_is_not_there_stalls(world: World) -> None:
    source = MySql({"host": "127.0.0.1", "port": "1", "user": "nobody"}, world.tables)
    with pytest.raises(TransientError, match="connect"):
        source.probe()


def test_wrong_credentials_stall(world: World) -> None:
    source = MySql({**world.server.config, "password": "wrong"}, world.tables)
    with pytest.raises(TransientError, match="Access denied"):
        source.probe()


def test_columns_added_and_moved_upstream_are_followed(world: World) -> None:
    location, a = Location(world), f"{world.name}.a"
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        world.execute(f"UPDATE {a} SET money = 101 WHERE id = 1")
        unknown = "uuid" if world.maria else "json"
        world.execute(f"ALTER TABLE {a} ADD more int FIRST, ADD most {unknown} AFTER id")
        world.execute(
            f"INSERT INTO {a} (id, money, note, more, most) "
            f"VALUES (60, 0, 'x', 7, {'UUID()' if world.maria else 'JSON_ARRAY(1)'})"
        )
        world.execute(f"ALTER TABLE {a} MODIFY note text AFTER more")
        world.execute(f"UPDATE {a} SET note = 'y' WHERE id = 60")
        location.tick(running)
        found = contents(client, a)
        world.execute(f"ALTER TABLE {a} DROP more, DROP most, MODIFY note text AFTER money")
        assert found == world.contents("a")
        running.stop()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("ALTER TABLE {a} DROP note", ", column 'note': it was dropped or renamed upstream"),
        ("ALTER TABLE {a} CHANGE note remark text", ", column 'note': it was dropped or renamed"),
        ("ALTER TABLE {a} MODIFY note blob", ", column 'note': it was string, and is binary"),
        ("DROP TABLE {a}", " was dropped upstream"),
        ("RENAME TABLE {a} TO {a}_old", " was renamed upstream"),
        ("ALTER TABLE {a} RENAME {a}_old", " was renamed upstream"),
        ("CREATE OR REPLACE TABLE {a} (id int)", " was dropped upstream and made again"),
        ("SET binlog_row_image = 'MINIMAL'; UPDATE {a} SET money = 7", " is logged"),
        (
            "SET binlog_format = 'STATEMENT'; UPDATE {a} SET money = 7",
            " was changed by a statement that was not logged as rows",
        ),
    ],
)
def test_an_incompatible_change_names_table_and_column(world: World, change: str, why: str) -> None:
    if change.startswith("CREATE OR REPLACE") and not world.maria:
        pytest.skip("MySQL has no such statement")
    source = world.source()
    lower = source.probe()
    for statement in change.format(a=f"{world.name}.a").split("; "):
        world.execute(statement)
    if "ALTER" in change and "RENAME" not in change:
        world.execute(f"UPDATE {world.name}.a SET money = 1 WHERE id = 1")
    with pytest.raises(DefiniteError, match=rf"table '{world.name}\.a'{why}"):
        read_all(source, lower)


def test_a_distributed_transaction_is_refused(world: World) -> None:
    source = world.source()
    lower = source.probe()
    update = f"UPDATE {world.name}.a SET money = 7 WHERE id = 1"
    for said in ("XA START 'x'", update, "XA END 'x'", "XA PREPARE 'x'"):
        world.execute(said)
    try:
        with pytest.raises(DefiniteError, match="XA"):
            read_all(source, lower)
    finally:
        world.execute("XA ROLLBACK 'x'")


def test_a_log_that_is_gone_is_definite(world: World) -> None:
    location = Location(world)
    with location.open() as client:
        running = location.start(client)
        location.tick(running)
        running.source.close()
        world.execute(f"UPDATE {world.name}.a SET money = money + 1")
        world.execute("FLUSH BINARY LOGS")
        with world.connection.cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            (file, *_) = cursor.fetchone()
            while True:  # Not what a stream reads that the server takes to be alive still.
                cursor.execute(f"PURGE BINARY LOGS TO '{file}'")
                cursor.execute("SHOW BINARY LOGS")
                if cursor.fetchone()[0] == file:
                    break
        with pytest.raises(DefiniteError, match=r"does not have its binary log.*keep its log"):
            location.tick(running)
        assert sum(contents(client, f"{world.name}.a").values()) == 5, "what is durable is there"
        running.source.close()


def test_another_server_is_definite(world: World) -> None:
    source = MySql(world.server.config, world.tables, server="another")
    with pytest.raises(DefiniteError, match="another server is there: it was 'another'"):
        source.probe()


def test_what_cannot_be_followed_is_told_with_the_remedy(world: World) -> None:
    name = world.name
    world.execute(f"CREATE TABLE {name}.m (id int) ENGINE = MyISAM")
    world.execute(
        f"CREATE TABLE {name}.f (id int, FOREIGN KEY (id) REFERENCES {name}.a (id)"
        " ON DELETE CASCADE)"
    )
    if world.maria:
        world.execute(f"CREATE TABLE {name}.u (id uuid)")
        world.execute(f"CREATE TABLE {name}.s (id int) WITH SYSTEM VERSIONING")
    world.execute("CREATE USER IF NOT EXISTS poor@'%' IDENTIFIED BY 'x'")
    world.execute(f"GRANT SELECT ON {name}.* TO poor@'%'")
    found = discover(world.server.config)
    assert found.obstacles([f"{name}.a", f"{name}.b"]) == []
    tables = [f"{name}.{table}" for table in ("mufs" if world.maria else "mf")]
    wrong = "; ".join(found.obstacles(tables))
    assert f"ALTER TABLE {name}.m ENGINE = InnoDB" in wrong
    assert f"table {name}.f is changed by its foreign key" in wrong
    if world.maria:
        assert f"table {name}.u, column id: its type uuid is not known here" in wrong
        assert f"table {name}.s keeps versions of its rows" in wrong
    poor = {**world.server.config, "user": "poor", "password": "x"}
    assert "GRANT SELECT, LOCK TABLES, REPLICATION SLAVE" in "".join(discover(poor).obstacles([]))
    settings = {"binlog_format": "MIXED", "binlog_row_image": "NOBLOB"}
    settings["binlog_row_metadata"] = "MINIMAL"
    try:
        for setting, other in settings.items():
            world.execute(f"SET GLOBAL {setting} = '{other}'")
        wrong = "; ".join(discover(world.server.config).obstacles([]))
    finally:
        for setting in settings:
            value = "ROW" if setting == "binlog_format" else "FULL"
            world.execute(f"SET GLOBAL {setting} = '{value}'")
    for setting in settings:
        assert f"SET GLOBAL {setting} = " in wrong


def test_a_foreign_key_changes_rows_that_no_log_has(world: World) -> None:
    """Why tables with such a key are refused."""
    name = world.name
    world.execute(
        f"CREATE TABLE {name}.f (id int, FOREIGN KEY (id) REFERENCES {name}.a (id)"
        " ON DELETE CASCADE)"
    )
    world.execute(f"INSERT INTO {name}.f VALUES (1), (2)")
    tables = discover(world.server.config).tables
    source = MySql(world.server.config, {t: tables[t] for t in (f"{name}.a", f"{name}.f")})
    world.sources.append(source)
    lower = source.probe()
    world.execute(f"DELETE FROM {name}.a WHERE id = 1")
    found = flat(source.read(lower, source.probe()))
    assert [output for output, *_ in found] == [f"{name}.a"]
