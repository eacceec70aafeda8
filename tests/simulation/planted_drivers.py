"""Drivers with one defect each, for the tests that have to see it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace

from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.specs import Checkpoint


class CommitsDuringStore(SqliteDriver):
    """Commits each run of rows as it comes."""

    def _store(self, request: m.StoreMany) -> None:
        super()._store(request)
        self._open_db.execute("COMMIT")
        self._in_transaction = False


class SkipsTheFence(SqliteDriver):
    """Takes whatever fence it finds for its own."""

    def _begin(self) -> sqlite3.Connection:
        assert self._row is not None
        where = (self._row.key_range.begin, self._row.key_range.end)
        found = self._open_db.execute(
            "SELECT fence FROM flow_checkpoints_v1 WHERE key_begin = ? AND key_end = ?", where
        ).fetchone()
        if found:
            self._row = replace(self._row, fence=found[0])
        return super()._begin()


class DropsADocument(SqliteDriver):
    """Loses the last row of a run of several."""

    def _store(self, request: m.StoreMany) -> None:
        super()._store(without_last(request))


def without_last(request: m.StoreMany) -> m.StoreMany:
    """Return a run of rows without the last of several."""
    kept = max(1, request.rows.num_rows - 1)
    return m.StoreMany(
        request.binding,
        request.keys_packed.slice(0, kept),
        request.rows.slice(0, kept),
        request.exists.slice(0, kept),
        request.delete.slice(0, kept),
    )


class CheckpointAfterData(SqliteDriver):
    """Commits the rows, and only then moves the checkpoint."""

    def respond(self, request: m.Request) -> Iterator[m.Response]:
        if isinstance(request, m.StartCommit):
            self._begin().execute("COMMIT")
            self._in_transaction = False
            yield m.StartedCommit()  # A crash here finds rows that no checkpoint knows.
            self._commit(request.runtime_checkpoint or Checkpoint())
            yield m.Acknowledged()
        else:
            yield from super().respond(request)


class CheckpointBeforeData(SqliteDriver):
    """Moves the checkpoint first; the rows come when the transaction is acknowledged."""

    _late: tuple[m.StoreMany, ...] = ()

    def respond(self, request: m.Request) -> Iterator[m.Response]:
        if isinstance(request, m.StoreMany):
            self._late += (request,)
        elif isinstance(request, m.Acknowledge):
            for store in self._late:
                self._store(store)
            if self._late:
                self._begin().execute("COMMIT")
                self._in_transaction, self._late = False, ()
        else:
            yield from super().respond(request)
