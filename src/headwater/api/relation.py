"""One table or view: its rows at a time, its changes over an interval, and what is written to it.

    orders = db.table("orders")
    orders.to_arrow()                        # now
    orders.df(as_of=t)                       # a PySpark DataFrame, at t
    orders.updates(t, t + 60_000)            # what changed in that minute, and when
    orders.insert([{"id": 1, "amount": 5}])  # if the database was opened to be written

Every time is in milliseconds since the Unix epoch. What can be read is ``[since, upper)``: before
``since`` history has been let go (``RETAIN HISTORY``), and what is at or after ``upper`` is waited
for. A plain view has no history of its own: it is what its query says at the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.adapter import catalog
from headwater.adapter.errors import WrongKind
from headwater.adapter.subscribe import DIFFERENCE, TIMESTAMP
from headwater.api.subscription import Subscription

if TYPE_CHECKING:
    from headwater.api.database import Database


class Relation:
    """A table or view of an open database."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self.name = name

    @property
    def kind(self) -> str:
        """What it is: ``table``, ``view``, ``materialized view`` …"""
        return self._found().kind

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return catalog.schemas(self._database.state(), (self.name,))[self.name]

    @property
    def key(self) -> tuple[str, ...]:
        """Its primary key; empty if it has none."""
        collection = self._collection()
        return () if collection is None else tuple(collection.key)

    @property
    def since(self) -> int | None:
        """The first time at which it can be read; None: of a plain view, or it cannot be."""
        collection = self._collection()
        if collection is None or collection.since.is_closed:
            return None
        return int(collection.since.only())

    @property
    def upper(self) -> int | None:
        """Every time before it is complete; None: of a plain view, or complete for ever."""
        state = self._database.state()
        found = self._found()
        if not found.collection:
            return None
        upper = state.upper(state.collections[state.names[found.collection]])
        return None if upper.is_closed else int(upper.only())

    # ---- its rows at a time ------------------------------------------------------------------

    def to_arrow(self, as_of: int | None = None) -> pa.Table:
        """Return its rows as an Arrow table: now, or as of a time."""
        return self._database.whole(self.name, as_of)

    def to_pandas(self, as_of: int | None = None) -> Any:
        """Return its rows as a pandas DataFrame."""
        return self.to_arrow(as_of).to_pandas()

    def fetchall(self, as_of: int | None = None) -> list[tuple[Any, ...]]:
        """Return its rows as tuples."""
        columns = [column.to_pylist() for column in self.to_arrow(as_of).columns]
        return list(zip(*columns, strict=True))

    def df(self, as_of: int | None = None) -> Any:
        """Return its rows at one time as a PySpark DataFrame: the same however often it is run.

        Large ones are read by Spark's tasks, and never pass through this process.
        """
        return self._database.frame(self.name, as_of)

    # ---- its changes -------------------------------------------------------------------------

    def updates(self, lower: int, upper: int) -> pa.Table:
        """Return its updates at times in ``[lower, upper)``; waits until that is complete.

        Columns ``mz_timestamp``, ``mz_diff``, and its own. History must go back to ``lower - 1``.
        """
        schema = [f.with_nullable(True) for f in self.schema]
        times = [pa.field(TIMESTAMP, pa.int64()), pa.field(DIFFERENCE, pa.int64())]
        if upper <= lower:
            return pa.schema([*times, *schema]).empty_table()
        with self.subscribe(snapshot=False, as_of=lower - 1, up_to=upper) as changes:
            batches = list(changes.batches())
        return pa.Table.from_batches(batches, schema=pa.schema([*times, *schema]))

    def updates_df(self, lower: int, upper: int) -> Any:
        """Return the same as a PySpark DataFrame, read by Spark's tasks where it is large."""
        return self._database.updates_frame(self.name, lower, upper)

    def subscribe(
        self,
        *,
        snapshot: bool = True,
        as_of: int | None = None,
        up_to: int | None = None,
        resume_at: int | None = None,
    ) -> Subscription:
        """Follow its changes; see :meth:`Database.subscribe`."""
        return self._database.subscribe(
            self.name,
            snapshot=snapshot,
            as_of=as_of,
            up_to=up_to,
            resume_at=resume_at,
        )

    # ---- writing -----------------------------------------------------------------------------

    def insert(self, rows: Any) -> int:
        """Insert rows, all at one time or none; return how many. See :meth:`Database.insert`."""
        return self._database.insert(self.name, rows)

    def _found(self) -> catalog.Object:
        return catalog.named(self._database.state(), self.name)

    def _collection(self) -> Any | None:
        state, found = self._database.state(), self._found()
        return state.collections[state.names[found.collection]] if found.collection else None

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.schema)
        return f"<{self.kind} {self.name} ({columns})>"


def require_kind(found: catalog.Object, kinds: tuple[str, ...], wanted: str) -> None:
    """Refuse what is something else."""
    if found.kind not in kinds:
        raise WrongKind(found.name, wanted, found.kind)
