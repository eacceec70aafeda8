"""What a statement answered: rows at one time, in the form that is asked for.

An answer is a value: its rows were read when the statement ran, all of them at one time, and stay
as they are whatever is written afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from headwater.api.lazy_spark import LazySpark

ROWS_SHOWN = 20


class Answer:
    """The answer to :meth:`~headwater.api.Database.sql`.

    >>> answer = Answer("SELECT", pa.table({"k": [1, 2]}), LazySpark())
    >>> answer.fetchall()
    [(1,), (2,)]
    >>> answer.columns, len(answer)
    (('k',), 2)
    """

    def __init__(self, tag: str, rows: pa.Table | None, spark: LazySpark) -> None:
        self.tag = tag
        """What was done, as PostgreSQL says it: ``INSERT 0 3``, ``CREATE TABLE``."""
        self._rows = rows
        self._spark = spark

    @property
    def schema(self) -> pa.Schema:
        """The columns, as Arrow has them."""
        return self.to_arrow().schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.to_arrow().column_names)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows, each a tuple of Python values."""
        return list(self)

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the first row; None if there is none."""
        return next(iter(self), None)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table; one without columns if the statement has no rows."""
        return pa.table({}) if self._rows is None else self._rows

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def df(self) -> Any:
        """Return the rows as a PySpark DataFrame, in the session of whoever opened the database."""
        from headwater.persist.spark import arrow_frame

        return arrow_frame(self._spark.frames, self.to_arrow())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for batch in self.to_arrow().to_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)

    def __repr__(self) -> str:
        if self._rows is None:
            return self.tag
        more = len(self) - ROWS_SHOWN
        shown = self.to_arrow().slice(0, ROWS_SHOWN).to_pandas().to_string(index=False)
        return f"{shown}\n… and {more:,} more" if more > 0 else shown
