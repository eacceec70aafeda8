"""Delta Lake as a driver of the protocol; what it has in common with other lakes: ``lake_driver``.

    <path>/<target>/                                       a Delta table, for everybody to read
    <path>/_staged/<materialization>/<key range>/          what a transaction is about to do

A transaction writes its rows into staged files, one per binding, and says what is to become of each
(:class:`~.delta_tables.Work`). They are applied each by one commit of its table: new rows are
appended, other changes merged by key. A file of new rows is written below its table at once, where
nobody sees it before the commit; one of a transaction that never committed is left to ``VACUUM``,
like any writer's. The commit has an application transaction, which is read before: so work is in
the table once (``delta_tables``). Other staged files of a key range than those its state names are
of transactions that never committed, and go when it is opened.

Whole numbers are ``long``, decimals ``decimal`` of their own digits, times of day and what has
parts are texts (JSON), all else is what Delta calls it. The place is a directory or a bucket
(``s3://…``, with the usual ``AWS_*`` environment variables).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.base.decoding import from_json
from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.materialize.drivers.delta_staging import Staging
from headwater.materialize.drivers.delta_tables import Tables, Work, arrow_type, failing, holds
from headwater.materialize.drivers.delta_tables import native_type as native
from headwater.materialize.drivers.lake import Dialect
from headwater.materialize.drivers.lake_driver import LakeDriver, ShardState
from headwater.materialize.drivers.sql import HARD_DELETE_SCHEMA, table_config
from headwater.materialize.protocol.specs import BindingSpec
from headwater.persist.blob import check_key, open_blob
from headwater.persist.location import Blob

STAGED: Final = "_staged"
_NAME_BYTES: Final = 8
_TARGET: Final = re.compile(r"[A-Za-z0-9._=-]+(?:/[A-Za-z0-9._=-]+)*\Z")
_NOT_IN_NAMES: Final = frozenset(" ,;{}()\n\t=")
"""What Delta's readers cannot have in the name of a column."""


def _unnameable(column: str) -> str | None:
    if set(column) & _NOT_IN_NAMES:
        return "a Delta table has no space and none of ,;{}()= in the name of a column"
    return None


DELTA: Final = Dialect("Delta table", native, arrow_type, holds, _unnameable)


class StagedWorkLost(HeadwaterError):
    """The rows of a committed transaction that are neither staged nor in their table."""

    def __init__(self, staged: str, table: str) -> None:
        super().__init__(
            f"what was committed for Delta table {table!r} is not in it, and {staged} with its "
            "rows is not there: somebody else removed it; BACKFILL to deliver everything anew"
        )


class DeltaDriver(LakeDriver[Work, Staging]):
    """A driver for the Delta tables in one place."""

    documentation_url: ClassVar[str] = "https://docs.delta.io"
    config_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "title": "A directory, or s3://bucket/prefix"},
            "hardDelete": HARD_DELETE_SCHEMA,
        },
    }
    resource_schema: ClassVar[Mapping[str, Any]] = table_config()

    dialect: ClassVar[Dialect] = DELTA

    def __init__(self) -> None:
        super().__init__()
        self._blob: Blob | None = None
        self._found = Tables("")

    def close(self) -> None:
        """Release the place; what is staged and not committed goes when it is opened again."""
        super().close()
        if self._blob is not None:
            self._blob.close()
            self._blob = None

    @property
    def _place(self) -> Blob:
        assert self._blob is not None
        return self._blob

    @property
    def _tables(self) -> Tables:
        return self._found

    def _connect(self, config: Mapping[str, Any]) -> None:
        if self._blob is None:
            self._found = Tables(config["path"])
            self._blob = open_blob(config["path"])

    def _path(self, resource: Mapping[str, Any]) -> tuple[str, ...]:
        table = resource["table"]
        if not _TARGET.match(table) or {".", ".."} & set(table.split("/")):
            raise InvalidUsage(
                f"{table!r} is no place for a Delta table: use letters, digits and . _ = -"
            )
        if table.split("/")[0] == STAGED:
            raise InvalidUsage(f"{table!r} cannot be delivered into: it is for our own")
        return (table,)

    def _remembered(self, state_json: bytes) -> dict[str, ShardState[Work]]:
        return from_json(state_json, dict[str, ShardState[Work]])

    def _tidy(self) -> None:
        due = {file for state in self._states.values() for file in state.staged}
        for found in list(self._place.list(self._directory)):
            if found.key not in due:
                self._place.delete(found.key)

    @property
    def _directory(self) -> str:
        name = blake2b(self._materialization.name.encode(), digest_size=_NAME_BYTES).hexdigest()
        return f"{STAGED}/{name}/{self._range}/"

    def _apply(self, file: str, work: Work) -> None:
        if work.added:
            if not self._tables.is_applied(work):
                if self._place.get_range(file, 0, 1) is None:
                    raise StagedWorkLost(file, work.table)
                self._tables.add_file(work, file.removeprefix(f"{work.table}/"))
            return
        content = self._place.get(file)
        if content is not None:
            self._tables.apply(work, pq.read_table(pa.BufferReader(content)))
            self._place.delete(file)
        elif not self._tables.is_applied(work):
            raise StagedWorkLost(file, work.table)

    def _stage(
        self, index: int, rows: pa.Table, gone: pa.BooleanArray, new: pa.BooleanArray
    ) -> None:
        binding = self._materialization.bindings[index]
        if index not in self._staging:
            self._staging[index] = self._begun(binding, rows)
        # What is new is only added, unless the row of a key that was deleted softly is there.
        added = binding.delta_updates or (self._hard_delete and pc.all(new).as_py())
        self._staging[index].write(rows, gone, merge=not added)

    def _begun(self, binding: BindingSpec, rows: pa.Table) -> Staging:
        """Begin a file: where the table is plain, at a place where it can become the table's."""
        table = binding.resource_path[-1]
        if not _is_key(table) or not self._tables.takes_files(table):
            return Staging(rows)
        file = f"headwater-{secrets.token_hex(_NAME_BYTES)}.parquet"
        directory = self._tables.directory(table)
        return Staging(rows, f"{table}/{file}", None if directory is None else directory / file)

    def _ended(self, binding: BindingSpec, staging: Staging) -> Iterator[tuple[str, Work]]:
        table, owner = binding.resource_path[-1], self._materialization.name
        app = f"headwater/{owner}/{binding.state_key}/{self._range}"
        assert binding.field_selection is not None
        name = staging.name or f"{self._directory}{secrets.token_hex(_NAME_BYTES)}.parquet"
        with failing(f"cannot write to Delta table {table}"):
            size = staging.settled()
        if size is None:
            content = staging.content()
            self._place.create(name, content)
            size = len(content)
        yield (
            name,
            Work(
                table,
                binding.field_selection.keys,
                staging.merge,
                app,
                self._tables.next_version(table, app),
                owner,
                self._tables.generation(table, owner),
                staging.statistics() if staging.name else "",
                size,
            ),
        )


def _is_key(table: str) -> bool:
    """Whether our own files can be below a table's directory."""
    try:
        check_key(table)
    except InvalidUsage:
        return False
    return True
