"""Every implementation of Consensus, held to the one contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from headwater.persist.consensus import MemoryConsensus, PostgresConsensus, SqliteConsensus
from headwater.persist.location import Consensus
from headwater.testing.conformance_consensus import CONSENSUS_CHECKS, OpenConsensus
from headwater.testing.unreliable import Outage

each_check = pytest.mark.parametrize("check", CONSENSUS_CHECKS, ids=lambda check: check.__name__)


@contextmanager
def closing_all(open_one: Callable[[], Consensus]) -> Iterator[OpenConsensus]:
    """Close at the end what the check left open."""
    opened: list[Consensus] = []

    def open_and_remember() -> Consensus:
        opened.append(open_one())
        return opened[-1]

    try:
        yield open_and_remember
    finally:
        for consensus in opened:
            consensus.close()


@each_check
def test_memory(check: Callable[[OpenConsensus], None]) -> None:
    log = MemoryConsensus()
    check(lambda: log)


@each_check
def test_sqlite(check: Callable[[OpenConsensus], None], tmp_path: Path) -> None:
    with closing_all(lambda: SqliteConsensus(tmp_path / "new" / "log.sqlite")) as open_consensus:
        check(open_consensus)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["log.sqlite"]


@each_check
def test_sqlite_shared_by_threads(check: Callable[[OpenConsensus], None], tmp_path: Path) -> None:
    """One object used by everybody, as a server does; ``close`` then opens a new one."""
    current: list[SqliteConsensus] = []

    def open_shared() -> Consensus:
        if not current or current[-1].closed:
            current.append(SqliteConsensus(tmp_path / "log.sqlite"))
        return current[-1]

    try:
        check(open_shared)
    finally:
        for log in current:
            log.close()


@each_check
def test_decorated(check: Callable[[OpenConsensus], None]) -> None:
    """A decorator that injects nothing changes nothing."""
    log = Outage().consensus(MemoryConsensus())
    check(lambda: log)


@pytest.mark.server
@each_check
def test_postgres(check: Callable[[OpenConsensus], None], postgres_dsn: str) -> None:
    name = uuid4().hex
    with closing_all(lambda: PostgresConsensus(postgres_dsn, name)) as open_consensus:
        check(open_consensus)
