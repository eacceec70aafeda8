"""What holds of delivery into a MariaDB holds of a real MySQL 8: the same tests, on that server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.testing import mysql
from tests.integration import (
    test_materialize_drivers,
    test_materialize_drivers_killed,
    test_materialize_drivers_types,
    test_materialize_mysql,
    test_materialize_text_forms,
)
from tests.integration.materialize_places import MySqlPlace

pytestmark = pytest.mark.soak

place = test_materialize_mysql.place


@pytest.fixture
def database(place: MySqlPlace) -> MySqlPlace:
    return place


for tests in (
    test_materialize_drivers,
    test_materialize_drivers_killed,
    test_materialize_drivers_types,
    test_materialize_mysql,
    test_materialize_text_forms,
):
    globals().update({name: t for name, t in vars(tests).items() if name.startswith("test_")})


@pytest.fixture(scope="module")
def mariadb() -> Iterator[mysql.MySql]:
    """A MySQL in its place."""
    reason = mysql.missing()
    if reason is not None:
        pytest.skip(reason)
    with mysql.mysql_server() as server:
        yield server
