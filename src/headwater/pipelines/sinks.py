"""Sinks: what flows append, delivered outside, batch by batch.

    1. rows of the flows are written into the *outbox* of the sink (a table,
       ``pipeline_sink_<name>``), in one entry with how far the flows have come (``flows``)
    2. the outbox is delivered as batch ``n + 1``
    3. the outbox is emptied and ``n + 1`` noted in ``pipeline_sinks``, in one entry

Invariant: the outbox holds one batch at most, and it does not change until that is noted. Whoever
dies after 1 or 2, the next run begins with 2, of the same rows under the same name. So a sink has a
batch exactly once where the receiver can say whether it has it (:data:`FORMATS`), and at least
once elsewhere.

The *token* of a sink is drawn when it is made: another location, or this one made again, writes
under names of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa

from headwater.adapter import catalog
from headwater.adapter.group_commit import TableWrite
from headwater.api import Database
from headwater.api.database import quoted
from headwater.compute.declared.elements import MistakeInProject
from headwater.compute.declared.written import FILE_FORMATS, write_anywhere, write_file
from headwater.pipelines.graph import Dataset
from headwater.pipelines.ledger import Ledger

EXACTLY_ONCE: Final = "exactly once"
AT_LEAST_ONCE: Final = "at least once"

FORMATS: Final = {**dict.fromkeys((*FILE_FORMATS, "delta", "kafka"), EXACTLY_ONCE)}
"""What is promised; of other formats of Spark: at least once."""

_EXTRAS: Final = {"delta": "deltalake", "kafka": "confluent_kafka"}
_NOT_OURS: Final = ("checkpointlocation",)
"""Options of Spark's streams that have no meaning here: the location is the checkpoint."""


def guarantee(form: str) -> str:
    """Return how often a row arrives in a sink of this format."""
    return FORMATS.get(form, AT_LEAST_ONCE)


def check(dataset: Dataset) -> None:
    """Refuse a sink that cannot be written to."""
    where, form = dataset.output.where, _form(dataset)
    options = dataset.output.options

    def refuse(why: str) -> None:
        raise MistakeInProject(where, f"sink {dataset.name!r}: {why}")

    if form in _EXTRAS and find_spec(_EXTRAS[form]) is None:
        refuse(f"format {form} needs pip install 'headwater[{form}]'")
    if form in (*FILE_FORMATS, "delta") and "path" not in options:
        refuse(f'format {form} needs the option "path", a directory')
    if form == "kafka":
        columns = set(dataset.schema.names)
        if "kafka.bootstrap.servers" not in options:
            refuse('format kafka needs the option "kafka.bootstrap.servers"')
        if "value" not in columns:
            refuse("a message has no value; have its flows bring a column value")
        if "topic" not in options and "topic" not in columns:
            refuse('say where to, with the option "topic" or a column topic')


class Sending:
    """Delivers the sinks of one run; relative paths begin at ``root``."""

    def __init__(self, database: Database, ledger: Ledger, session: Any, root: Path) -> None:
        self._database = database
        self._ledger = ledger
        self._session = session
        self._root = root

    def open(self, dataset: Dataset) -> int:
        """Have an outbox of these columns, with nothing in it; return how many rows went out."""
        database, table = self._database, dataset.table
        self._ledger.open_sink(dataset.name)
        if catalog.find(database.state(), table) is None:
            database.create_table(table, dataset.schema)
            return 0
        sent = self.deliver(dataset)
        there = catalog.schemas(database.state(), (table,))[table]
        if [(f.name, f.type) for f in there] != [(f.name, f.type) for f in dataset.schema]:
            database.sql(f"DROP TABLE {quoted(table)}")
            database.create_table(table, dataset.schema)
        return sent

    def deliver(self, dataset: Dataset) -> int:
        """Deliver what is in the outbox; return how many rows that were."""
        rows = self._database.whole(dataset.table)
        if not rows.num_rows:
            return 0
        token, noted = self._ledger.sink(dataset.name)
        self._write(dataset, rows, token, noted + 1)
        target = self._database.engine.coordinator.target(dataset.table)
        emptied = rows.cast(target.schema)
        write = TableWrite(target.id, target.name, (), emptied, [-1] * rows.num_rows)
        self._ledger.commit(write, self._ledger.sent(dataset.name, noted + 1))
        return int(rows.num_rows)

    def _write(self, dataset: Dataset, rows: pa.Table, token: str, number: int) -> None:
        name, form = dataset.name, _form(dataset)
        options = _options(dataset, self._root)
        if form in FILE_FORMATS:
            write_file(self._session, name, form, options, rows, token, number)
        elif form == "delta":
            from headwater.pipelines.sink_delta import write_commit  # An extra.

            write_commit(name, options, rows, token, number)
        elif form == "kafka":
            from headwater.pipelines.sink_kafka import write_messages  # An extra.

            write_messages(name, options, rows, token, number)
        else:
            write_anywhere(self._session, name, form, options, rows)


def waiting(database: Database, dataset: Dataset) -> str:
    """Return what an outbox has; empty: nothing."""
    rows = database.whole(dataset.table).num_rows
    return f"{rows:,} rows of a run that ended early are to be delivered" if rows else ""


def _form(dataset: Dataset) -> str:
    return (dataset.output.format or "").lower()


def _options(dataset: Dataset, root: Path) -> Mapping[str, str]:
    found = {
        key: value for key, value in dataset.output.options.items() if key.lower() not in _NOT_OURS
    }
    path = found.get("path")
    if path is not None and not urlsplit(path).scheme:
        absolute = root / path
        # delta-rs takes a path as it is, Spark any address.
        found["path"] = str(absolute) if _form(dataset) == "delta" else absolute.as_uri()
    return found
