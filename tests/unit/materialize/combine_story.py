"""Four bindings of one collection, and what their runs say wherever they were combined."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headwater.base.ids import GlobalId
from headwater.materialize.combine import Bound
from headwater.materialize.definition import Binding, delivered_schema
from headwater.materialize.gather import Run
from headwater.materialize.loaded import LoadedRows
from headwater.persist.client import WriteHandle
from headwater.persist.evolution import updates_schema

SCHEMA: Final = pa.schema(
    [pa.field("k", pa.int64()), pa.field("who", pa.string()), pa.field("n", pa.int64())]
)
LIMIT: Final = 20_000


def bindings(gid: GlobalId) -> tuple[Bound, ...]:
    """Return a binding of each kind."""
    chosen = (
        Binding("c", gid, "by_k", ("k",)),
        Binding("c", gid, "sums", ("who",), reduce=(("n", "sum"),)),
        Binding("c", gid, "firsts", ("who",), reduce=(("n", "firstWriteWins"),), append_only=True),
        Binding("c", gid, "log", ("who",), delta_updates=True),
    )
    return tuple(
        Bound(
            index,
            binding,
            binding.target,
            delivered_schema(binding, SCHEMA, hard_delete=True),
            tuple(SCHEMA.names),
        )
        for index, binding in enumerate(chosen)
    )


def append(write: WriteHandle, time: int, rows: list[tuple[int, str, int, int]]) -> None:
    """Make changes at one time; each is a row and a diff."""
    columns = {name: [row[at] for row in rows] for at, name in enumerate([*SCHEMA.names, "__diff"])}
    table = pa.table(columns | {"__time": [time] * len(rows)})
    schema = updates_schema(SCHEMA)
    write.compare_and_append(
        table.select(schema.names).cast(schema), write.upper, time + 1
    ).result()


def contents(run: Run) -> list[tuple[object, ...]]:
    """Return what a run loads and stores, however it is cut into messages."""
    loads = [key for load in run.loads(b"\xff") for key in load.keys_packed.to_pylist()]
    stores = [
        row
        for store in run.stores(LoadedRows(run.bound, LIMIT))
        for row in zip(
            store.keys_packed.to_pylist(),
            store.exists.to_pylist(),
            store.delete.to_pylist(),
            map(str, store.rows.to_pylist()),
            strict=True,
        )
    ]
    return [*((key,) for key in loads), *stores]
