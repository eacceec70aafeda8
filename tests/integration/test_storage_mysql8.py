"""What holds of a MariaDB holds of a real MySQL 8: the same tests, on that server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwater.storage.offsets import NOTHING, Offsets
from headwater.storage.sources.my_discover import discover
from headwater.storage.sources.mysql import MySql
from headwater.testing import mysql
from tests.integration.mysql_world import World
from tests.integration.test_storage_mysql import *  # noqa: F403
from tests.integration.test_storage_mysql_mistakes import *  # noqa: F403
from tests.unit.storage.conformance import flat

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def mariadb() -> Iterator[mysql.MySql]:
    """A MySQL in its place."""
    reason = mysql.missing()
    if reason is not None:
        pytest.skip(reason)
    with mysql.mysql_server() as server:
        yield server


def test_json_is_the_same_copied_and_logged(world: World) -> None:
    """Its JSON is binary in the log, and a text where it is selected."""
    table = f"{world.name}.j"
    world.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, j json)")
    texts = [
        '{"b": [1, -2, 3.5, 1e300, true, false, null], "a": {"": {}, "x": []}}',
        '"a \\"quoted\\" text, ü, 𝄞, \\\\ and \\n"',
        '[18446744073709551615, -9223372036854775808, 65536, 0.1, "x"]',
        "null",
        "[" + ", ".join(f'"{"long" * 50}{n}"' for n in range(500)) + "]",
    ]
    values = ", ".join("(%s, %s)" for _ in texts)
    rows = [each for numbered in enumerate(texts) for each in numbered]
    made = (
        "JSON_OBJECT('d', CAST('2024-02-29' AS DATE), 't', CAST('-12:34:56.5' AS TIME(6)), "
        "'dt', CAST('2024-02-29 01:02:03' AS DATETIME), 'n', CAST(1.50 AS DECIMAL(5,2)), "
        "'b', CAST(x'00ff' AS BINARY))"
    )

    def written(add: int) -> None:
        with world.connection.cursor() as cursor:
            shifted = [each + add if isinstance(each, int) else each for each in rows]
            cursor.execute(f"INSERT INTO {table} VALUES {values}", shifted)
            cursor.execute(f"INSERT INTO {table} VALUES ({add + 50}, {made})")

    written(0)
    tables = {table: discover(world.server.config).tables[table]}
    source = MySql(world.server.config, tables)
    world.sources.append(source)
    upper = source.probe()
    snapshot = {row["id"]: row["j"] for row in payloads(source, NOTHING, upper)}
    written(100)
    changes = {row["id"] - 100: row["j"] for row in payloads(source, upper, source.probe())}
    assert snapshot == changes
    assert len(snapshot) == len(texts) + 1


def payloads(source: MySql, lower: Offsets, upper: Offsets) -> list[dict[str, Any]]:
    return [dict(payload) for *_, payload in flat(source.read(lower, upper))]
