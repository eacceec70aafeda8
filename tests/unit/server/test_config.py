"""Which place counts for a setting, and that a mistake in one is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.base.errors import InvalidUsage
from headwater.server import config
from headwater.server.config import Address, ServerConfig, read_file, resolved

DATA = {"data": "d"}


def test_option_then_environment_then_file_then_default() -> None:
    file = {"data": "file", "listen": "127.0.0.1:1", "spark_memory_mib": 1, "log_level": "error"}
    environment = {"HEADWATER_LISTEN": "127.0.0.1:2", "HEADWATER_SPARK_MEMORY_MIB": "2"}
    made = resolved({"spark_memory_mib": 3}, environment, file)
    assert (made.spark_memory_mib, made.port, made.log_level) == (3, 2, "error")
    assert (made.data, made.spark_master) == (Path("file"), "")


def test_the_console_is_beside_the_door_unless_it_is_told_where_or_off() -> None:
    assert resolved({"data": "d"}, {}).console == Address("127.0.0.1", 6876)
    assert resolved({"data": "d", "listen": "[::1]:0"}, {}).console == Address("::1", 0)
    assert resolved({"data": "d", "console": "0.0.0.0:80"}, {}).console == Address("0.0.0.0", 80)
    assert resolved(DATA, {"HEADWATER_CONSOLE": "off"}).console is None
    assert resolved({}, {}, {"data": "d", "console": False}).console is None


def test_a_tick_is_a_second_unless_it_is_said() -> None:
    assert resolved(DATA, {}).tick_ms == 1000
    assert resolved({**DATA, "tick_ms": 200}, {"HEADWATER_TICK_MS": "300"}).tick_ms == 200
    assert resolved(DATA, {}, {"tick_ms": 60_000}).tick_ms == 60_000


def test_settings_of_spark_are_taken_from_the_file() -> None:
    file = {"data": "d", "spark": {"spark.executor.memory": "4g", "spark.x": 3, "spark.y": True}}
    assert resolved({}, {}, file).spark == (
        ("spark.executor.memory", "4g"),
        ("spark.x", "3"),
        ("spark.y", "true"),
    )


@pytest.mark.parametrize(
    ("options", "environment", "file", "told"),
    [
        ({}, {}, {}, "which directory"),
        (DATA, {}, {"lisen": "1"}, "f: lisen is not a setting; perhaps listen"),
        (DATA, {}, {"take_over": True}, "f: take_over is an option only"),
        (DATA, {}, {"data": 3}, None),
        ({}, {}, {"data": 3}, "f: data: 3 is not a text"),
        ({"data": ""}, {}, {}, "--data: an empty path"),
        ({**DATA, "listen": "here"}, {}, {}, "--listen: 'here' is no address; write HOST:PORT"),
        ({**DATA, "listen": "h:70000"}, {}, {}, "--listen"),
        (DATA, {"HEADWATER_SPARK_CORES": "-1"}, {}, "HEADWATER_SPARK_CORES: '-1' is not a whole"),
        ({**DATA, "tick_ms": 199}, {}, {}, "--tick-ms: a tick of 199 ms; it may be from 200 to"),
        (DATA, {"HEADWATER_TICK_MS": "60001"}, {}, "HEADWATER_TICK_MS: a tick of 60001 ms"),
        (DATA, {"HEADWATER_TLS_REQUIRED": "maybe"}, {}, "neither true nor false"),
        (DATA, {"HEADWATER_TLS_REQUIRED": "yes"}, {}, "TLS needs both"),
        (DATA, {}, {"log_level": "loud"}, "f: log_level: 'loud' is none of debug"),
        ({**DATA, "log_format": "xml"}, {}, {}, "--log-format: 'xml' is neither plain nor json"),
        ({**DATA, "blob": "s3://b/p"}, {}, {}, "--blob: a shared location needs --consensus"),
        (DATA, {}, {"spark": {"spark": {"executor": "x"}}}, "spark is a table"),
    ],
)
def test_a_mistake_names_its_place_and_the_remedy(
    options: dict[str, object], environment: dict[str, str], file: dict[str, object], told: str
) -> None:
    if told is None:  # An option hides what is behind it, mistakes too.
        assert resolved(options, environment, file, "f").data == Path("d")
        return
    with pytest.raises(InvalidUsage) as error:
        resolved(options, environment, file, "f")
    assert told in str(error.value)


def test_a_file_that_is_missing_or_no_toml(tmp_path: Path) -> None:
    with pytest.raises(InvalidUsage, match="cannot be read: No such file"):
        read_file(tmp_path / "absent.toml")
    path = tmp_path / "a.toml"
    path.write_text("data = ")
    with pytest.raises(InvalidUsage, match="is not TOML"):
        read_file(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidUsage, match="it is not text"):
        read_file(path)


def test_what_is_shown_has_no_password() -> None:
    made = ServerConfig(
        Path("d"),
        consensus="postgresql://ann:hidden@host/db?password=hidden",
        spark=(("spark.hadoop.fs.s3a.secret.key", "hidden"),),
    )
    shown = made.shown()
    assert "hidden" not in str(shown)
    assert shown["consensus"] == "postgresql://ann:…@host/db?…"
    assert "spark.spark.hadoop.fs.s3a.secret.key" in shown
    assert config.without_password("postgresql://[bad") == "postgresql://…"
