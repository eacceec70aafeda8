"""How Spark is started (pure): when it speaks with Python through a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.compute.session import SparkSettings, configuration

ENABLED = "spark.python.unix.domain.socket.enabled"
DIRECTORY = "spark.python.unix.domain.socket.dir"
SHORT = Path("/short")


def _made(directory: Path, master: str = "") -> dict[str, str]:
    return configuration(SparkSettings(master=master), directory, directory / "log")


def test_on_this_machine_python_is_spoken_to_through_a_file() -> None:
    made = _made(SHORT)
    assert made[ENABLED] == "true"
    assert made[DIRECTORY] == str(SHORT)


@pytest.mark.parametrize("master", ["spark://there:7077", "local-cluster[2,1,1024]", "yarn"])
def test_other_machines_may_not_have_the_directory(master: str) -> None:
    assert ENABLED not in _made(SHORT, master)


def test_a_directory_of_a_long_name_has_no_room_for_a_socket() -> None:
    longest = Path("/" + "d" * 59)
    assert len(f"{_made(longest)[DIRECTORY]}/.{'u' * 36}.sock") == 103
    assert ENABLED not in _made(Path(f"{longest}d"))


def test_who_wants_tcp_says_so() -> None:
    made = configuration(SparkSettings(extra=((ENABLED, "false"),)), SHORT, SHORT / "log")
    assert made[ENABLED] == "false"
