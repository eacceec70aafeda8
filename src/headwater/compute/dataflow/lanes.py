"""Typed lanes: updates of many lanes, of many views, as one stream of rows.

A step runs as one chain in one partition, Python stage, JVM passage, Python stage, …, and a plan
that mentions a Python stage twice would run it twice. So all lanes of all views of a step travel
in one stream. Its columns are

    __lane INT, __time BIGINT, __diff BIGINT, and *slots*: columns pooled by type

A lane's columns take the slots of their types in order (the second bigint of a lane is in the
second bigint slot); a stream has as many slots of a type as its widest lane needs. So 32 views cost
the columns of one (latency.md, 12). Slots a lane does not use are NULL; a column of type ``void``
needs none, it is NULL anyway.

    unpack(pack(lane, updates)) == {lane: updates}              bit for bit, order kept

Who puts lanes of several views into one stream gives them distinct numbers, from 0 on. Below 0 are

    NOTE     a BINARY payload: what tasks hand back to the driver
    FAILED   a BINARY payload (:class:`Failure`): rows on which an edge failed
    twins    ``failed_lane(edge)``: the rows of the edge's source on which it failed, as they were;
             the Python stage after the passage turns them into payloads (:func:`split_failures`),
             so that no later passage needs to know them

The slots, and so the texts over them, are a function of the lanes alone.

Kept by: this module. Relied on by: ``passage.py``, whose texts read and write slots, and the Python
stages of a step. No Spark in here: ``arrow_schema`` *is* what Spark 4.3 exchanges (``tests/spark/
test_passages.py`` compares).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from headwater.base.decoding import from_msgpack
from headwater.collection.types import SqlType
from headwater.compute.dataflow.edge import Lane
from headwater.compute.dataflow.operator import update_schema
from headwater.compute.ir.expression import Column
from headwater.persist.consolidate import DIFF, TIME

LANE: Final = "__lane"
NOTE: Final = -1
FAILED: Final = -2
PAYLOAD: Final = Column("payload_0", "binary", True)
PAYLOAD_LANES: Final[Mapping[int, Lane]] = {NOTE: Lane((PAYLOAD,)), FAILED: Lane((PAYLOAD,))}

_FIRST_TWIN: Final = -10

BATCH_ROWS_MAX: Final = 65_536


def failed_lane(edge: int) -> int:
    """Return the lane of the rows on which the edge of this number failed."""
    return _FIRST_TWIN - edge


def failed_edge(lane: int) -> int | None:
    """Return the edge whose failures are in this lane, if it is such a lane."""
    return _FIRST_TWIN - lane if lane <= _FIRST_TWIN else None


class Slot(NamedTuple):
    """A column of a stream."""

    name: str
    type: SqlType


@dataclass(frozen=True)
class Stream:
    """The lanes that flow between two stages; those with a payload are always among them."""

    lanes: Mapping[int, Lane]
    slots: tuple[Slot, ...] = field(init=False, repr=False)
    _places: Mapping[int, tuple[str | None, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        lanes = dict(sorted({**self.lanes, **PAYLOAD_LANES}.items()))
        wanted: Counter[str] = Counter()
        for lane in lanes.values():
            wanted |= Counter(_types(lane))
        types = sorted(wanted)
        known = {c.sql_type.spark: c.sql_type for lane in lanes.values() for c in lane.columns}
        slots = tuple(
            Slot(f"s_{number}_{n}", known[type_])
            for number, type_ in enumerate(types)
            for n in range(wanted[type_])
        )
        object.__setattr__(self, "lanes", lanes)
        object.__setattr__(self, "slots", slots)
        places = {number: _placed(lane, types) for number, lane in lanes.items()}
        object.__setattr__(self, "_places", places)

    # ---- what it looks like --------------------------------------------------------------------

    def places(self, lane: int) -> tuple[str | None, ...]:
        """Return for each column of a lane the name of its slot; ``None``: it is always NULL."""
        return self._places[lane]

    def spark_schema(self) -> str:
        """Return the columns as Spark's DDL: what ``mapInArrow`` is told that it yields."""
        slots = (f"{slot.name} {slot.type.spark}" for slot in self.slots)
        fixed = (f"{LANE} int NOT NULL", f"{TIME} bigint NOT NULL", f"{DIFF} bigint NOT NULL")
        return ", ".join([*fixed, *slots])

    def arrow_schema(self) -> pa.Schema:
        """Return the columns as Spark hands them to a Python stage, and takes them from it."""
        fixed = [
            pa.field(LANE, pa.int32(), nullable=False),
            pa.field(TIME, pa.int64(), nullable=False),
            pa.field(DIFF, pa.int64(), nullable=False),
        ]
        return pa.schema([*fixed, *(pa.field(slot.name, slot.type.arrow) for slot in self.slots)])

    def empty(self, lane: int) -> pa.Table:
        """Return no updates of a lane."""
        return update_schema(self.lanes[lane].columns).empty_table()

    # ---- rows of it ----------------------------------------------------------------------------

    def pack(self, lane: int, updates: pa.Table) -> pa.Table:
        """Return updates of a lane, under its names with ``__time`` and ``__diff``, as rows."""
        columns = self.lanes[lane].columns
        filled = {
            place: updates.column(column.name)
            for column, place in zip(columns, self.places(lane), strict=True)
            if place is not None
        }
        rows = updates.num_rows
        arrays: list[Any] = [
            pa.array(np.full(rows, lane, np.int32)),
            updates.column(TIME),
            updates.column(DIFF),
        ]
        for slot in self.slots:
            type_ = slot.type.arrow
            column = filled.get(slot.name)
            arrays.append(pa.nulls(rows, type_) if column is None else _cast(column, type_))
        return pa.Table.from_arrays(arrays, schema=self.arrow_schema())

    def batches(self, updates: Mapping[int, pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield the updates of all these lanes as few batches: what a Python stage yields."""
        packed = [self.pack(lane, table) for lane, table in updates.items() if table.num_rows]
        if packed:
            # A batch costs the JVM about as much as a thousand rows, whatever is in it.
            rows = pa.concat_tables(packed).combine_chunks()
            yield from rows.to_batches(max_chunksize=BATCH_ROWS_MAX)

    def unpack(self, batches: Iterable[pa.RecordBatch]) -> dict[int, pa.Table]:
        """Return the updates of each lane that has any, in the order in which they came."""
        given = [batch for batch in batches if batch.num_rows]
        if not given:
            return {}
        # By position: a schema of Spark's differs from ours in what it says of nullability.
        rows = pa.Table.from_batches(given).rename_columns(self.arrow_schema().names)
        rows = rows.combine_chunks()
        numbers = rows.column(LANE).to_numpy()
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        ends = [*starts[1:], len(order)]
        return {
            int(lane): self._lane(rows, int(lane), order[start:end])
            for lane, start, end in zip(found, starts, ends, strict=True)
        }

    def _lane(self, rows: pa.Table, lane: int, at: Any) -> pa.Table:
        schema = update_schema(self.lanes[lane].columns)
        # Stages write lane after lane and passages keep the order: most often nothing is copied.
        together = int(at[-1]) - int(at[0]) == len(at) - 1
        piece = rows.slice(int(at[0]), len(at)) if together else rows
        indices = pa.array(at)
        arrays: list[Any] = []
        for name, type_ in zip((*self.places(lane), TIME, DIFF), schema.types, strict=True):
            if name is None:
                arrays.append(pa.nulls(len(at), type_))
                continue
            column = piece.column(name)
            arrays.append(_cast(column if together else column.take(indices), type_))
        return pa.Table.from_arrays(arrays, schema=schema)


def _types(lane: Lane) -> list[str]:
    return [c.sql_type.spark for c in lane.columns if c.sql_type.name != "void"]


def _placed(lane: Lane, types: Sequence[str]) -> tuple[str | None, ...]:
    used: Counter[str] = Counter()
    places: list[str | None] = []
    for column in lane.columns:
        type_ = column.sql_type.spark
        if column.sql_type.name == "void":
            places.append(None)
            continue
        places.append(f"s_{types.index(type_)}_{used[type_]}")
        used[type_] += 1
    return tuple(places)


def _cast(column: Any, type_: pa.DataType) -> Any:
    # Nested types differ in the names of their parts and in what may be NULL; values do not.
    return column if column.type == type_ else column.cast(type_)


# ---- payloads --------------------------------------------------------------------------------


class Failure(msgspec.Struct, frozen=True):
    """Rows on which an edge failed: updates of its source, with their times and diffs."""

    edge: int
    rows: bytes
    """Arrow's IPC stream."""

    def table(self) -> pa.Table:
        """Return the updates."""
        with pa.ipc.open_stream(self.rows) as reader:
            return reader.read_all()


def payloads(contents: Sequence[bytes]) -> pa.Table:
    """Return these payloads as updates of NOTE or of FAILED."""
    fixed = np.zeros(len(contents), np.int64)
    arrays = [pa.array(contents, pa.binary()), pa.array(fixed), pa.array(fixed + 1)]
    return pa.Table.from_arrays(arrays, schema=update_schema((PAYLOAD,)))


def contents(updates: pa.Table | None) -> list[bytes]:
    """Return the payloads in updates of NOTE or of FAILED; none for ``None``."""
    return [] if updates is None else updates.column(PAYLOAD.name).to_pylist()


def split_failures(found: Mapping[int, pa.Table]) -> tuple[dict[int, pa.Table], list[bytes]]:
    """Return what was unpacked without the twins, and the twins' rows as payloads of FAILED."""
    kept: dict[int, pa.Table] = {}
    failures: list[bytes] = []
    for lane, updates in found.items():
        edge = failed_edge(lane)
        if edge is None:
            kept[lane] = updates
            continue
        failures.append(failure_payload(edge, updates))
    return kept, failures


def failure_payload(edge: int, updates: pa.Table) -> bytes:
    """Return the payload of FAILED that says: an edge failed on these rows of its source."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, updates.schema) as writer:
        writer.write_table(updates)
    return msgspec.msgpack.encode(Failure(edge, sink.getvalue().to_pybytes()))


def read_failure(payload: bytes) -> Failure:
    """Return what a payload of FAILED says."""
    return from_msgpack(payload, Failure)
