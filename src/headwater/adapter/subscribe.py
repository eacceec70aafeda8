"""``SUBSCRIBE``: a collection at a time, then every change of it, in the order of time.

    SUBSCRIBE [TO] {object | (query)} [WITH (SNAPSHOT [= bool], PROGRESS [= bool])]
        [AS OF t] [UP TO t]
        [ENVELOPE {UPSERT | DEBEZIUM} (KEY (column, …))]

Rows are ``mz_timestamp``, ``mz_progressed`` (with PROGRESS), ``mz_diff`` and the object's columns.
First, with SNAPSHOT (the default), the contents at the time of the start, ``t``; then every update
at times after ``t``, before ``UP TO``. Times never decrease. With PROGRESS a row with
``mz_progressed`` says that no more comes before its time; the first one says ``t`` itself. With an
envelope the changes of a key at one time are one row (``adapter/envelopes.py``).

**To resume** from the last progress ``p``: ``… WITH (PROGRESS, SNAPSHOT false) AS OF p - 1``. Then
nothing is lost and nothing comes twice, because a progress at ``p`` was sent after all before it.

Where the object is dropped, or one that the query names, the subscription ends with an error that
says so (42P01).

Where it is replaced meanwhile, a subscription goes on: at the time of the swap it tells what the
new rows are other than the old ones (``collection/succession.py``). It ends with an error that says
so where the new ones have other columns, or where it is one to a query over the object: what is
kept for a query is kept as it was asked. A time before the swap is not to be resumed from
any more when the old collection is gone.

What is not delivered yet is held (``adapter/holds.py``). While nothing happens an empty batch goes
by now and then, so that whoever sends the rows can look whether it has been cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.adapter import envelopes
from headwater.adapter.clients import Follower
from headwater.adapter.errors import (
    AdapterError,
    InvalidDefinition,
    TimestampNotReadable,
)
from headwater.adapter.holds import Holds
from headwater.adapter.limit import Limit
from headwater.adapter.mistakes import in_error
from headwater.adapter.object_errors import ReplacedMeanwhile, SubscribedIndexDropped
from headwater.adapter.sql.statements import Envelope, Subscribe
from headwater.base.ids import GlobalId
from headwater.collection.subscription import OtherColumns, Subscription
from headwater.persist import evolution
from headwater.persist.core import Core
from headwater.persist.decision import collection_of
from headwater.persist.errors import DestroyedCollection
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.narrow import Narrowing
from headwater.persist.read import Event, Updates

TIMESTAMP: Final = "mz_timestamp"
PROGRESSED: Final = "mz_progressed"
DIFFERENCE: Final = "mz_diff"

NOTHING_YET_SECONDS: Final = 0.5


Ends = Callable[[Subscription, Event | None], AdapterError | None]
"""Why a subscription ends before it tells an event, or while nothing comes; None: it does not."""


def nothing() -> None:
    """Do nothing."""


def columns(core: Core, gid: GlobalId, statement: Subscribe) -> pa.Schema:
    """Return the columns of a subscription."""
    data = evolution.from_bytes(collection_of(core.state, gid).schemas[-1])
    progressed = [pa.field(PROGRESSED, pa.bool_())] if statement.progress else []
    if statement.envelope is None:
        rest = [pa.field(DIFFERENCE, pa.int64()), *(f.with_nullable(True) for f in data)]
    else:
        rest = envelopes.fields(statement.envelope, data, statement.name)
        rest = [field.with_nullable(True) for field in rest]
    return pa.schema([pa.field(TIMESTAMP, pa.int64()), *progressed, *rest])


def follow(
    core: Core,
    gid: GlobalId,
    statement: Subscribe,
    as_of: int,
    holds: Holds,
    limit: Limit,
    follower: Follower,
    ends: Ends,
    begins: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a subscription that starts at ``as_of``, which is held.

    ``follower`` is told how far it is, and when it ends. ``begins``: since when the collection is
    what is followed.
    """
    up_to = statement.up_to
    if up_to is not None and up_to < as_of:
        raise InvalidDefinition(f"UP TO {up_to} is before the start, {as_of}")
    schema = columns(core, gid, statement)
    subscription = Subscription(
        core, gid, as_of, snapshot=statement.snapshot, narrowing=Narrowing(), goes_on=True
    )
    if subscription.id == gid and subscription.as_of < begins:
        subscription.close()
        raise TimestampNotReadable(statement.name, as_of, begins)
    holds.acquire(as_of)
    events = _events(subscription, schema, statement, as_of, holds, limit, follower, ends)
    next(events)
    return events


def _events(
    subscription: Subscription,
    schema: pa.Schema,
    statement: Subscribe,
    as_of: int,
    holds: Holds,
    limit: Limit,
    follower: Follower,
    ends: Ends,
) -> Iterator[pa.RecordBatch]:
    held = as_of
    try:
        # Begun at once: closing a generator that was never begun would release nothing.
        yield pa.RecordBatch.from_pylist([], schema=schema)
        if statement.progress:
            yield _progress(schema, as_of)
        end = statement.up_to
        # Everything before it is delivered: not even the contents, at first.
        delivered = as_of if statement.snapshot else as_of + 1
        while end is None or delivered < end:
            event = _fetched(subscription, statement, ends)
            if event is None:
                if subscription.upper.is_closed:
                    return
                if limit.is_over():
                    raise limit.error("changes")
                yield pa.RecordBatch.from_pylist([], schema=schema)
                continue
            yield from _rows(event, schema, statement)
            if event.upper.is_closed:
                return
            if isinstance(event, Updates):
                continue  # Its progress comes next.
            delivered = upper = event.upper.only()
            if upper - 1 > held:
                holds.acquire(upper - 1)
                holds.release(held)
                held = upper - 1
                follower.reached(upper)
            if statement.progress and upper > as_of:
                yield _progress(schema, upper if end is None else min(upper, end))
    finally:
        holds.release(held)
        subscription.close()
        follower.end()


def _fetched(subscription: Subscription, statement: Subscribe, ends: Ends) -> Event | None:
    """Return the next event, if one comes in time; raise why no more of them is told."""
    try:
        event = subscription.fetch(NOTHING_YET_SECONDS)
    except DestroyedCollection as error:
        # What is named is gone; or an index of it, which nobody has to name.
        raise ends(subscription, None) or SubscribedIndexDropped(statement.name) from error
    except OtherColumns as error:
        raise ReplacedMeanwhile(
            statement.name, error.begin, f"Its columns are others now: {'; '.join(error.changes)}."
        ) from error
    ended = ends(subscription, event)
    if ended is not None:
        raise ended
    return event


def _rows(event: Event, schema: pa.Schema, statement: Subscribe) -> Iterator[pa.RecordBatch]:
    if not isinstance(event, Updates):
        return
    came = event.errors.filter(pc.greater(event.errors.column(DIFF), 0))
    if came.num_rows:
        raise in_error(statement.name, str(came.column("message")[0]))
    updates = event.ok
    if statement.up_to is not None:
        updates = updates.filter(pc.less(updates.column(TIME), statement.up_to))
    if not updates.num_rows:
        return
    updates = updates.sort_by([(TIME, "ascending")])
    if statement.envelope is not None:
        yield _enveloped(statement.envelope, updates, schema)
        return
    columns = {TIMESTAMP: updates.column(TIME), DIFFERENCE: updates.column(DIFF)}
    if statement.progress:
        columns[PROGRESSED] = pa.repeat(pa.scalar(False), updates.num_rows)
    arrays = [columns[name] if name in columns else updates.column(name) for name in schema.names]
    yield from pa.Table.from_arrays(arrays, schema=schema).to_batches()


def _enveloped(envelope: Envelope, updates: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    data = pa.schema([field for field in updates.schema if field.name not in (TIME, DIFF)])
    rows = list(envelopes.told(envelope, data, updates))
    names = [name for name in schema.names if name != PROGRESSED]
    columns: dict[str, list[object]] = {
        name: [row[place] for row in rows] for place, name in enumerate(names)
    }
    columns[PROGRESSED] = [False] * len(rows)
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _progress(schema: pa.Schema, time: int) -> pa.RecordBatch:
    row = {TIMESTAMP: time, PROGRESSED: True}
    arrays = [pa.array([row.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
