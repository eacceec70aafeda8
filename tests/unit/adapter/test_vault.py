"""Secrets at rest: what is stored says nothing, and only its key opens it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.adapter.object_errors import SecretUnreadable
from headwater.adapter.redaction import HIDDEN, redacted
from headwater.adapter.sql.parse import parse
from headwater.adapter.vault import KEY_BYTES, Vault, key_of_file
from headwater.base.clock import ManualClock
from headwater.base.ids import SeqNo
from headwater.testing.sql_server import SqlServer

VALUE = "correct horse battery staple"
GOLDEN = bytes.fromhex(
    "017093db545009038d000102030405060708090a0b206dba7fa08bff13338d3fe68fb1b4169c7c2cf999be"
)
"""Of the secret u7, by the key 00 01 … 1f (``docs/design/20261115_secrets.md``)."""


def test_it_opens_what_it_sealed_and_says_nothing() -> None:
    vault = Vault.of_key(os.urandom(KEY_BYTES))
    sealed = vault.sealed("u1", VALUE)
    assert vault.opened("u1", sealed) == VALUE
    assert VALUE.encode() not in sealed
    assert vault.sealed("u1", VALUE) != sealed, "equal values do not show as equal"


def test_what_was_sealed_once_is_opened_for_ever() -> None:
    assert Vault.of_key(bytes(range(KEY_BYTES))).opened("u7", GOLDEN) == "golden"


def test_another_key_another_name_or_a_changed_byte_opens_nothing() -> None:
    vault = Vault.of_key(os.urandom(KEY_BYTES))
    sealed = vault.sealed("u1", VALUE)
    with pytest.raises(SecretUnreadable, match="sealed with the key"):
        Vault.of_key(os.urandom(KEY_BYTES)).opened("u1", sealed)
    with pytest.raises(SecretUnreadable, match="was changed"):
        vault.opened("u2", sealed)
    with pytest.raises(SecretUnreadable, match="was changed"):
        vault.opened("u1", sealed[:-1] + bytes([sealed[-1] ^ 1]))


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "config" / "secrets.key"
    with pytest.raises(SecretUnreadable, match="cannot be read"):
        key_of_file(path, create=False)
    key = key_of_file(path, create=True)
    assert key_of_file(path, create=True) == key
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(SecretUnreadable, match="can be read by others"):
        key_of_file(path, create=False)


def test_the_value_is_nowhere_in_the_location_nor_in_what_is_shown() -> None:
    with SqlServer(ManualClock(1_000)) as server:
        sql = server.session()
        sql(f"CREATE SECRET s AS '{VALUE}'")
        sql("CREATE CONNECTION c TO POSTGRES (HOST 'h', DATABASE 'd', USER 'u', PASSWORD SECRET s)")
        state = server.client.core.state
        assert VALUE not in repr(state.items)
        log = server.client.core.consensus.scan(SeqNo(0), 10_000)
        assert log
        assert VALUE.encode() not in b"".join(entry.data for entry in log)
        shown = sql("SHOW CREATE SECRET s; SHOW OBJECTS; SHOW CREATE CONNECTION c")
        assert VALUE not in repr(shown)
        (definition,) = (each for each in state.items if each.startswith("connection/"))
        said = server.coordinator.connections(definition.removeprefix("connection/"))
        assert VALUE in said["dsn"], "and it is there for who connects"
        assert VALUE not in repr(server.coordinator.clients.sessions())


def test_the_value_is_in_no_repr() -> None:
    assert VALUE not in repr(parse(f"CREATE SECRET s AS '{VALUE}'"))
    assert VALUE not in repr(parse(f"ALTER SECRET s AS '{VALUE}'"))


HEAD, TAIL = "CREATE MATERIALIZATION m INTO ", ' (t AS "x" KEY (k))'


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("WEBHOOK (URL 'http://u:p@h', SECRET 'it''s')", "(URL 'http://u:*@h', SECRET '*')"),
        ("POSTGRES (DSN 'host=h password=p dbname=d')", "(DSN 'host=h password=* dbname=d')"),
        ("POSTGRES (DSN 'password=''p q'' user=u')", "(DSN 'password=* user=u')"),
        ("POSTGRES (DSN 'postgresql://h/d?password=p&x=1')", "'postgresql://h/d?password=*&x=1')"),
        ("CONNECTOR (COMMAND 'a', CONFIG '{\"k\": 1}')", "(COMMAND 'a', CONFIG '*')"),
        ("SQLITE (PATH '/a/b.db')", "(PATH '/a/b.db')"),
    ],
)
def test_a_secret_in_clear_is_not_kept(written: str, kept: str) -> None:
    found = redacted(HEAD + written + TAIL)
    assert found.startswith(HEAD)
    assert found.endswith(kept.replace("*", HIDDEN) + TAIL)
