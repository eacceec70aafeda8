"""Servers shared by the conformance suites of the ports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

# Before anybody imports them, so that a failing check shows its values.
pytest.register_assert_rewrite(
    "headwater.testing.conformance_blob", "headwater.testing.conformance_consensus"
)

from headwater.testing.servers import S3Server, postgres_server, s3_server  # noqa: E402


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    with postgres_server() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        server.create_bucket("headwater-test")
        yield server
