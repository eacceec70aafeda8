"""What a location remembers of pipelines, as tables that anybody can read.

    pipeline_datasets   which dataset is of which pipeline; what is not in it is somebody else's
    pipeline_flows      up to which time a flow has taken a stream of ours
    pipeline_files      which files a flow, or a table of files, has taken, as they were
    pipeline_sinks      how many batches a sink has been sent, and what they are called by

They are written together with what they are about, in one entry: a flow's rows and how far it has
come are there both, or neither is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from secrets import token_hex
from typing import Any, Final

import pyarrow as pa

from headwater.adapter import catalog
from headwater.adapter.group_commit import TableWrite, Write
from headwater.api import Database
from headwater.compute.declared.outside import File

DATASETS: Final = "pipeline_datasets"
FLOWS: Final = "pipeline_flows"
FILES: Final = "pipeline_files"
SINKS: Final = "pipeline_sinks"
TABLES: Final = (DATASETS, FLOWS, FILES, SINKS)

_TOKEN_BYTES: Final = 6

_COLUMNS: Final = {
    DATASETS: "dataset text PRIMARY KEY, pipeline text NOT NULL, kind text NOT NULL",
    FLOWS: "flow text, input text, reached bigint NOT NULL, PRIMARY KEY (flow, input)",
    FILES: (
        "reader text, path text, changed_ms bigint NOT NULL, bytes bigint NOT NULL, "
        "PRIMARY KEY (reader, path)"
    ),
    SINKS: "sink text PRIMARY KEY, token text NOT NULL, batches bigint NOT NULL",
}

INPUT: Final = "input"
"""The kind of a table that follows files, or something else outside."""


class Ledger:
    """The tables of one location; ``database`` None: there is no location yet."""

    def __init__(self, database: Database | None) -> None:
        self._database = database

    def set_up(self) -> None:
        """Make the tables that are missing."""
        assert self._database is not None
        for name, columns in _COLUMNS.items():
            self._database.sql(f"CREATE TABLE IF NOT EXISTS {name} ({columns})")

    # ---- what is known -------------------------------------------------------------------------

    def owners(self) -> dict[str, tuple[str, str]]:
        """Return the pipeline and the kind of every dataset."""
        return {row["dataset"]: (row["pipeline"], row["kind"]) for row in self._rows(DATASETS)}

    def reached(self, flow: str) -> dict[str, int]:
        """Return up to which time a flow has taken each stream."""
        return {r["input"]: r["reached"] for r in self._rows(FLOWS) if r["flow"] == flow}

    def files(self, reader: str) -> frozenset[File]:
        """Return the files that were taken, as they were."""
        return frozenset(
            File(row["path"], row["changed_ms"], row["bytes"])
            for row in self._rows(FILES)
            if row["reader"] == reader
        )

    def sink(self, name: str) -> tuple[str, int]:
        """Return by what batches of a sink are called, and how many it has been sent."""
        (found,) = (row for row in self._rows(SINKS) if row["sink"] == name)
        return found["token"], found["batches"]

    def _rows(self, table: str) -> list[dict[str, Any]]:
        database = self._database
        if database is None or catalog.find(database.state(), table) is None:
            return []
        found: list[dict[str, Any]] = database.whole(table).to_pylist()
        return found

    # ---- what changes --------------------------------------------------------------------------

    def own(self, dataset: str, pipeline: str, kind: str) -> None:
        """Note whose a dataset is."""
        found = self.owners().get(dataset)
        old = (
            [] if found is None else [{"dataset": dataset, "pipeline": found[0], "kind": found[1]}]
        )
        new = [{"dataset": dataset, "pipeline": pipeline, "kind": kind}]
        if old != new:
            self.commit(self._write(DATASETS, old, new))

    def disown(self, dataset: str) -> None:
        """Forget a dataset."""
        found = self.owners().get(dataset)
        if found is not None:
            old = [{"dataset": dataset, "pipeline": found[0], "kind": found[1]}]
            self.commit(self._write(DATASETS, old, []))

    def moved(self, flow: str, reached: dict[str, int], *, anew: bool = False) -> TableWrite:
        """Return the write that says how far a flow has come; ``anew``: and nothing else of it."""
        before = self.reached(flow)
        gone = [each for each in before if anew or each in reached]
        old = [{"flow": flow, "input": i, "reached": before[i]} for i in gone]
        new = [{"flow": flow, "input": i, "reached": time} for i, time in reached.items()]
        return self._write(FLOWS, old, new)

    def taken(self, reader: str, files: Iterable[File]) -> TableWrite:
        """Return the write that says which files a reader has, and no others."""
        old = [_file(reader, file) for file in self.files(reader)]
        return self._write(FILES, old, [_file(reader, file) for file in files])

    def open_sink(self, name: str) -> None:
        """Have a sink known; what it was sent stays so."""
        if not any(row["sink"] == name for row in self._rows(SINKS)):
            new = {"sink": name, "token": token_hex(_TOKEN_BYTES), "batches": 0}
            self.commit(self._write(SINKS, [], [new]))

    def sent(self, name: str, batches: int) -> TableWrite:
        """Return the write that says how many batches a sink has been sent."""
        token, before = self.sink(name)
        old, new = ({"sink": name, "token": token, "batches": count} for count in (before, batches))
        return self._write(SINKS, [old], [new])

    def _write(
        self, table: str, old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]
    ) -> TableWrite:
        assert self._database is not None
        target = self._database.engine.coordinator.target(table)
        rows = pa.Table.from_pylist([*old, *new], schema=target.schema)
        diffs = [-1] * len(old) + [1] * len(new)
        return TableWrite(target.id, table, target.key, rows, diffs)

    def commit(self, *writes: TableWrite) -> None:
        """Write all of it at one time."""
        assert self._database is not None
        # An entry has one part of a table.
        self._database.engine.coordinator.commits.write(Write(tuple(writes)))


def _file(reader: str, file: File) -> dict[str, Any]:
    return {
        "reader": reader,
        "path": file.path,
        "changed_ms": file.changed_ms,
        "bytes": file.bytes,
    }
