"""What a maintained view computes, as a value that can be stored (the skeleton's one shape).

    SELECT g…, sum(x)…, count(*), count(x)…  FROM left JOIN right ON left.k = right.k… GROUP BY g…

with SQL's meaning: NULL keys join nothing, NULLs are one group, a sum over no value is NULL. Sums
are exact: over integers a BIGINT, over DECIMAL(p, s) a DECIMAL(min(38, p + 10), s), and overflow is
judged on the value a reader would see. Floating sums are refused until their exact accumulator
exists.

A view has, besides its output, internal collections that are written in the same log entry, so that
all of them always have the same upper (:class:`Collections`):

    arrange/<id>/left, arrange/<id>/right   the columns of each input that the view needs, by join
                                            key; an arrangement belongs to one view so far
    accumulators/<id>                       one row per group: its count, and for each aggregated
                                            column the number of its values and their sum

The definition is stored in the log as the item ``view/<id>``, ``id`` being that of the output.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
import pyarrow as pa

from headwater.base.errors import InvalidUsage
from headwater.base.ids import GlobalId
from headwater.collection.key import key_form, require_same_form

Side = Literal["left", "right"]
SIDES: Final[tuple[Side, Side]] = ("left", "right")

ITEM_PREFIX: Final = "view/"
STORED_VERSION: Final = 1
DECIMAL_DIGITS_MAX: Final = 38
SUPPORTED: Final = "SELECT g, sum(x), count(*) FROM a JOIN b ON a.k = b.k GROUP BY g"


class UnsupportedView(InvalidUsage):
    """A query that cannot be maintained (yet)."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"a view cannot have {problem} so far; supported is {SUPPORTED}")
        self.problem = problem


class InputColumn(msgspec.Struct, frozen=True):
    """A column of one of the two inputs."""

    side: Side
    name: str


class GroupOutput(msgspec.Struct, frozen=True, tag="group"):
    """An output column that is the group's column at ``index``."""

    name: str
    index: int


class SumOutput(msgspec.Struct, frozen=True, tag="sum"):
    """An output column that is the sum of the aggregated column at ``index``."""

    name: str
    index: int


class CountOutput(msgspec.Struct, frozen=True, tag="count"):
    """How many rows (``index`` is ``None``), or values of the aggregated column, a group has."""

    name: str
    index: int | None


Output = GroupOutput | SumOutput | CountOutput


class JoinSumView(msgspec.Struct, frozen=True):
    """The query, by columns of its inputs."""

    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    group: tuple[InputColumn, ...]
    aggregated: tuple[InputColumn, ...]
    outputs: tuple[Output, ...]

    def key(self, side: Side) -> tuple[str, ...]:
        """The columns by which one input is joined, and arranged."""
        return self.left_key if side == "left" else self.right_key

    def needed(self, side: Side) -> tuple[str, ...]:
        """The columns of one input that the view reads, the join key first."""
        names = dict.fromkeys(self.key(side))
        for column in (*self.group, *self.aggregated):
            if column.side == side:
                names.setdefault(column.name)
        return tuple(names)


class Collections(msgspec.Struct, frozen=True):
    """The ids of what a view writes; all of it has the same upper at all times."""

    output: GlobalId
    left: GlobalId
    right: GlobalId
    accumulators: GlobalId


class View(msgspec.Struct, frozen=True):
    """A view as it is stored: from these inputs, since ``start``, into these collections."""

    version: int
    name: str
    sql: str
    query: JoinSumView
    left: GlobalId
    right: GlobalId
    start: int
    collections: Collections
    spark_version: str = ""

    @property
    def id(self) -> GlobalId:
        """The id of the view is that of its output."""
        return self.collections.output

    @property
    def inputs(self) -> tuple[GlobalId, ...]:
        """What it reads; a self-join reads one collection."""
        return tuple(dict.fromkeys((self.left, self.right)))

    @property
    def owned(self) -> tuple[GlobalId, ...]:
        """What it writes, the output first."""
        ids = self.collections
        return (ids.output, ids.left, ids.right, ids.accumulators)

    @property
    def reader_id(self) -> str:
        """The name of the view's hold on its inputs."""
        return f"{ITEM_PREFIX}{self.id}"


def item_key(view: GlobalId) -> str:
    """The key of the log item that defines a view."""
    return f"{ITEM_PREFIX}{view}"


def group_name(index: int) -> str:
    """The accumulators' column of a group column."""
    return f"g{index}"


def values_name(index: int) -> str:
    """The accumulators' column that counts the values of an aggregated column."""
    return f"n{index}"


def sum_name(index: int) -> str:
    """The accumulators' column with the exact sum of an aggregated column."""
    return f"s{index}"


COUNT: Final = "count"
"""The accumulators' column with the number of rows of the group."""


def is_summable(type_: pa.DataType) -> bool:
    """Whether the sum of such a column can be kept exactly."""
    return bool(pa.types.is_signed_integer(type_) or pa.types.is_decimal128(type_))


def accumulator_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the exact sum of a column, before it is narrowed to what SQL returns."""
    scale = type_.scale if pa.types.is_decimal(type_) else 0
    return pa.decimal128(DECIMAL_DIGITS_MAX, scale)


def sum_type(type_: pa.DataType) -> pa.DataType:
    """Return the type SQL gives the sum of a column."""
    if pa.types.is_decimal(type_):
        return pa.decimal128(min(DECIMAL_DIGITS_MAX, type_.precision + 10), type_.scale)
    return pa.int64()


class Schemas(msgspec.Struct, frozen=True):
    """The schemas of the collections of a view; derived, never stored."""

    output: pa.Schema
    left: pa.Schema
    right: pa.Schema
    accumulators: pa.Schema

    def arranged(self, side: Side) -> pa.Schema:
        """The columns of the arrangement of one input."""
        return self.left if side == "left" else self.right


def schemas(query: JoinSumView, left: pa.Schema, right: pa.Schema) -> Schemas:
    """Derive every schema from those of the inputs; refuses what cannot be joined or summed."""
    by_side: dict[Side, pa.Schema] = {"left": left, "right": right}
    for a, b in zip(query.left_key, query.right_key, strict=True):
        require_same_form(left.field(a).type, right.field(b).type)
    types = [by_side[column.side].field(column.name).type for column in query.group]
    for type_ in types:
        key_form(type_)
    arguments = [by_side[column.side].field(column.name).type for column in query.aggregated]
    outputs: list[pa.Field] = []
    for output in query.outputs:
        match output:
            case GroupOutput():
                outputs.append(pa.field(output.name, types[output.index]))
            case CountOutput():
                outputs.append(pa.field(output.name, pa.int64(), nullable=False))
            case SumOutput():
                type_ = arguments[output.index]
                if not is_summable(type_):
                    raise UnsupportedView(f"a sum of {type_}")
                outputs.append(pa.field(output.name, sum_type(type_)))
    accumulators = [pa.field(group_name(n), type_) for n, type_ in enumerate(types)]
    accumulators.append(pa.field(COUNT, pa.int64(), nullable=False))
    summed = {o.index for o in query.outputs if isinstance(o, SumOutput)}
    for n, type_ in enumerate(arguments):
        accumulators.append(pa.field(values_name(n), pa.int64(), nullable=False))
        if n in summed:
            accumulators.append(pa.field(sum_name(n), accumulator_type(type_), nullable=False))
    return Schemas(
        output=pa.schema(outputs),
        left=pa.schema([left.field(name) for name in query.needed("left")]),
        right=pa.schema([right.field(name) for name in query.needed("right")]),
        accumulators=pa.schema(accumulators),
    )


def output_key(query: JoinSumView) -> tuple[str, ...]:
    """Return the key of the output: its group columns, where all of them are selected."""
    names = {o.index: o.name for o in query.outputs if isinstance(o, GroupOutput)}
    return (
        tuple(names[n] for n in range(len(query.group))) if len(names) == len(query.group) else ()
    )
