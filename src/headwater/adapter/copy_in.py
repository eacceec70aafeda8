"""``COPY table FROM STDIN``: rows that arrive in batches and are written as one.

Nothing is visible before :meth:`TableCopy.finish`, which commits them like an INSERT of all of
them: at one time, keys and NOT NULL checked, in the session's transaction if there is one.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from headwater.adapter.group_commit import TableWrite
from headwater.adapter.pgwire.backend import Column
from headwater.adapter.sql.values import check_columns
from headwater.adapter.writes import Target


class TableCopy:
    """A COPY that has begun."""

    def __init__(
        self,
        target: Target,
        columns: tuple[str, ...] | None,
        commit: Callable[[TableWrite], None],
    ) -> None:
        self._target = target
        self._names = tuple(target.schema.names) if columns is None else columns
        check_columns(target.name, self._names, target.schema)
        self._commit = commit
        self._batches: list[pa.RecordBatch] = []

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of every batch, in order."""
        fields = [self._target.schema.field(name) for name in self._names]
        return tuple(map(Column.of_field, fields))

    def write(self, batch: pa.RecordBatch) -> None:
        """Take some rows."""
        self._batches.append(batch)

    def finish(self) -> None:
        """Write all of them."""
        target = self._target
        # NULLs are refused below, by the column's name, and not by a cast.
        given = pa.schema([target.schema.field(n).with_nullable(True) for n in self._names])
        tables = [pa.Table.from_batches([b]).rename_columns(given.names) for b in self._batches]
        rows = pa.concat_tables([given.empty_table(), *(t.cast(given) for t in tables)])
        columns = []
        for field in target.schema:
            if field.name in self._names:
                column = rows.column(field.name)
            else:
                column = target.default(field.name, rows.num_rows)
            columns.append(column)
        whole = target.stored(columns)
        self._batches.clear()
        self._commit(TableWrite(target.id, target.name, target.key, whole, [1] * whole.num_rows))

    def abort(self) -> None:
        """Forget them."""
        self._batches.clear()
