"""A location opened from Python: read-only beside whoever runs it, or as its one writer.

**Read-only**, the default: nothing is written anywhere, no lock is taken, and a running server does
not notice. What it reads is what the log says: a read is at a time chosen after a look at the log,
so whatever anybody was told before is in it. Views are brought up to date by whoever runs the
location; if nobody does, reads show the newest time at which all they read is complete
(``isolation="serializable"`` asks for that always). Its readings are not held: history that the
writer lets go (``RETAIN HISTORY``, a minute unless told otherwise) is gone for it too, and a read
that is overtaken raises; it never returns other rows.

**Writable**: this process is the server of the location, without a wire. It takes the lock, and is
refused if somebody has it (``take_over=True`` fences them). Tables tick, views are kept from the
first moment somebody reads or makes one, deliveries run.

Statements of :meth:`Database.sql` share one session (its settings, its transaction), one at a time.
Threads that want to work side by side take a :meth:`Database.session` each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

from headwater.adapter import catalog
from headwater.adapter.sql.names import quoted_name
from headwater.adapter.sql.statements import AsOf, Select, Subscribe
from headwater.adapter.subscribe import DIFFERENCE, TIMESTAMP
from headwater.api.answer import Answer
from headwater.api.engine import Engine, ReadOnlyDatabase, open_client
from headwater.api.lazy_spark import LazySpark
from headwater.api.relation import Relation, require_kind
from headwater.api.session import Session, Transaction
from headwater.api.subscription import Subscription
from headwater.collection.schema import type_of
from headwater.persist.client import ReadHandle
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.location import Blob, Consensus
from headwater.persist.read import Snapshot
from headwater.persist.state import State

TIMEOUT_S: Final = 60.0
FRAMES_KEPT: Final = 64
"""For how many of the newest DataFrames the objects they read are kept from being collected."""

_VIEWS: Final = ("view", "materialized view")


def open(  # noqa: A001 - as a user calls it: headwater.open
    location: str | Path = "",
    *,
    writable: bool = False,
    spark: Any | None = None,
    blob: str | Blob | None = None,
    consensus: str | Consensus | None = None,
    take_over: bool = False,
    isolation: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Database:
    """Open a location: read-only beside its server, or (``writable``) as its one writer.

    ``location`` is a local directory, unless ``blob`` and ``consensus`` say otherwise. ``spark`` is
    your own SparkSession; without one, that of the process is used, and if there is none, one is
    started when a query first needs it. Only what was started here is stopped by ``close()``.
    ``timeout_s`` is how long a statement waits for what it reads to be complete; 0: for ever.

    >>> import headwater, tempfile
    >>> with headwater.open(tempfile.mkdtemp(), writable=True) as db:
    ...     _ = db.sql("CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric(10,2))")
    ...     _ = db.sql("INSERT INTO orders VALUES ($1, $2), (2, 7.50)", (1, "12.25"))
    ...     sorted(db.table("orders").fetchall())
    [(1, Decimal('12.25')), (2, Decimal('7.50'))]
    """
    client = open_client(
        location, writable=writable, blob=blob, consensus=consensus, take_over=take_over
    )
    try:
        engine = Engine(client, LazySpark(spark), timeout_ms=round(timeout_s * 1000))
        return Database(engine, isolation)
    except BaseException:
        client.stop()
        raise


class Database:
    """See the module's docstring; made by :func:`open`. Close it, or use it in a ``with``."""

    def __init__(self, engine: Engine, isolation: str | None = None) -> None:
        self._engine = engine
        self._isolation = isolation
        self._session = Session(engine, isolation)
        self._frames: deque[Snapshot] = deque(maxlen=FRAMES_KEPT)

    @property
    def writable(self) -> bool:
        """Whether it was opened to be written."""
        return self._engine.writable

    @property
    def engine(self) -> Engine:
        """The parts it is made of: for tools."""
        return self._engine

    # ---- statements --------------------------------------------------------------------------

    def sql(self, text: str, params: Sequence[object] = ()) -> Answer:
        """Execute statements as the wire takes them; answer the last one.

        ``$1`` … ``$n`` of a single statement stand for ``params``. What it acknowledges is durable.
        """
        return self._session.sql(text, params)

    def session(self) -> Session:
        """Return a session of its own: for another thread, or other settings."""
        return Session(self._engine, self._isolation)

    def transaction(self) -> Transaction:
        """Return a session that is one transaction: committed where its ``with`` ends well.

        Reads of it are all at one time; writes of it happen together or not at all.
        """
        return Transaction(self._engine, self._isolation)

    # ---- what there is -----------------------------------------------------------------------

    def state(self) -> State:
        """Return the state of the location, as the log has it now: for tools."""
        return self._engine.state()

    def now(self) -> int:
        """Return the newest time at which every table can be read: for ``as_of``."""
        self._engine.state()
        return self._engine.timeline.read_time()

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        return [each.name for each in catalog.objects(self.state()) if each.kind == "table"]

    def views(self) -> list[str]:
        """Return the names of the views, materialized or not."""
        return [each.name for each in catalog.objects(self.state()) if each.kind in _VIEWS]

    def relation(self, name: str) -> Relation:
        """Return what can be read under this name; refuses one that means nothing."""
        catalog.schemas(self.state(), (name,))
        return Relation(self, name)

    def table(self, name: str) -> Relation:
        """Return a table."""
        require_kind(catalog.named(self.state(), name), ("table",), "table")
        return Relation(self, name)

    def view(self, name: str) -> Relation:
        """Return a view, materialized or not."""
        require_kind(catalog.named(self.state(), name), _VIEWS, "view")
        return Relation(self, name)

    # ---- rows at a time ----------------------------------------------------------------------

    def whole(self, name: str, as_of: int | None = None) -> pa.Table:
        """Return all rows of a relation; Spark is not needed unless it is a plain view."""
        query = f"SELECT * FROM {quoted_name(name)}"  # noqa: S608 - a quoted name
        at = None if as_of is None else AsOf(as_of)
        # In a session of its own: that of sql() may have another dialect, or a transaction open.
        with self.session() as session:
            return session.execute(Select(query, at, (name,)), query).to_arrow()

    def frame(self, name: str, as_of: int | None = None) -> Any:
        """Return a relation at one time as a PySpark DataFrame, in the session it was opened with.

        It is lazy and definite. Of the newest of them the objects are kept from being collected by
        this process; where another process collected one, running it raises ``PartCollected``.
        """
        from headwater.persist.spark import rows_frame

        with self._engine.chosen(name, as_of) as (sources, time):
            if sources.views:
                return self._as_frame(self.whole(name, time))
            ((_, collection),) = sources.relations.items()
            snapshot = self._engine.client.reader(collection).snapshot(time)
            self._frames.append(snapshot)
            return rows_frame(self._engine.spark.frames, snapshot)

    def updates_frame(self, name: str, lower: int, upper: int) -> Any:
        """Return the updates of a relation at times in ``[lower, upper)`` as a DataFrame."""
        from headwater.persist.spark import updates_frame

        _, gid = catalog.relation(self.state(), name)
        # Complete at the last of them is complete before upper; held while parts are looked up.
        with self._engine.chosen(name, upper - 1):
            handle = ReadHandle(self._engine.client.core, gid)
            handle.listen(lower - 1).close()  # Refuses a time before its history.
            found = updates_frame(self._engine.spark.frames, handle, lower, upper)
            renamed = found.withColumnsRenamed({TIME: TIMESTAMP, DIFF: DIFFERENCE})
            rest = [name for name in renamed.columns if name not in (TIMESTAMP, DIFFERENCE)]
            return renamed.select(TIMESTAMP, DIFFERENCE, *rest)

    def _as_frame(self, rows: pa.Table) -> Any:
        return Answer("SELECT", rows, self._engine.spark).df()

    # ---- changes -----------------------------------------------------------------------------

    def subscribe(
        self,
        name: str,
        *,
        snapshot: bool = True,
        as_of: int | None = None,
        up_to: int | None = None,
        resume_at: int | None = None,
    ) -> Subscription:
        """Follow a relation: its rows at a time, then every change after it, each exactly once.

        ``as_of``: where to begin (now, unless told otherwise). ``up_to``: end before this time.
        ``resume_at``: the ``position`` of an earlier subscription, to go on from there without the
        rows again.
        """
        if resume_at is not None:
            snapshot, as_of = False, resume_at - 1
        at = None if as_of is None else AsOf(as_of)
        statement = Subscribe(name, snapshot=snapshot, progress=True, as_of=at, up_to=up_to)
        text = f"SUBSCRIBE TO {quoted_name(name)}"
        self._engine.admit(statement, text)
        session = self._engine.coordinator.open_session()
        try:
            result = session.execute(statement, text)
        except BaseException:
            session.close()
            raise
        return Subscription(session, result, resumed_at=resume_at)

    # ---- writing -----------------------------------------------------------------------------

    def insert(self, table: str, rows: Any) -> int:
        """Insert rows, all at one time or none of them; return how many.

        ``rows``: an Arrow table or batch, a pandas or PySpark DataFrame, or mappings. Columns are
        matched by name; those left out get their defaults.
        """
        return self._session.insert(table, rows)

    def create_table(
        self, name: str, columns: pa.Schema | Mapping[str, str], *, key: Sequence[str] = ()
    ) -> Relation:
        """Create a table: ``columns`` is an Arrow schema, or SQL types by name."""
        if isinstance(columns, pa.Schema):
            lines = [
                f"{quoted(field.name)} {type_of(field).postgres}"
                f"{'' if field.nullable else ' NOT NULL'}"
                for field in columns
            ]
        else:
            lines = [f"{quoted(each)} {type_}" for each, type_ in columns.items()]
        if key:
            lines.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
        self.sql(f"CREATE TABLE {quoted_name(name)} ({', '.join(lines)})")
        return Relation(self, name)

    def create_view(self, name: str, query: str) -> Relation:
        """Create a view: a name for a query."""
        self.sql(f"CREATE VIEW {quoted_name(name)} AS {query}")
        return Relation(self, name)

    def create_materialized_view(self, name: str, query: Any) -> Relation:
        """Create a view that is kept up to date.

        ``query`` is SQL, or a function that makes a PySpark DataFrame of relations::

            db.create_materialized_view(
                "totals", lambda table: table("orders").groupBy("region").sum("amount")
            )
        """
        if isinstance(query, str):
            self.sql(f"CREATE MATERIALIZED VIEW {quoted_name(name)} AS {query}")
            return Relation(self, name)
        engine = self._engine
        if not engine.writable:
            raise ReadOnlyDatabase(f"CREATE MATERIALIZED VIEW {name}")
        state = engine.state()
        known = [each.name for each in catalog.objects(state) if each.collection]
        plan = engine.evaluator.plan(query, catalog.schemas(state, known))
        engine.coordinator.definitions.keep_plan(name, plan, tuple(plan.relations))
        return Relation(self, name)

    def drop(self, name: str, *, cascade: bool = False) -> None:
        """Drop a table or view; with ``cascade`` also everything that is made of it."""
        kind = catalog.named(self.state(), name).kind
        self.sql(f"DROP {kind.upper()} {quoted_name(name)}{' CASCADE' if cascade else ''}")

    # ---- its end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Stop everything that was started here; a Spark of somebody else's goes on."""
        self._session.close()
        self._frames.clear()
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def quoted(name: str) -> str:
    """Return a name as SQL takes it, whatever its characters."""
    return '"' + name.replace('"', '""') + '"'
