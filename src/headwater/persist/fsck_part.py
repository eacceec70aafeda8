"""The half of ``fsck`` that reads parts: their bytes, and what the log says of them.

One run of updates may be read through several windows (a seal that cuts through a part): its bytes
are read once, and every use of it is held against them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import ExternalError, HeadwaterError
from headwater.persist import finding
from headwater.persist.batch import Batch, ColumnStats, Inline, Part, Segment
from headwater.persist.consolidate import consolidation
from headwater.persist.evolution import DIFF, TIME
from headwater.persist.finding import Finding
from headwater.persist.layout import Layouts
from headwater.persist.location import Blob
from headwater.persist.part import PartMissing, read_part, verify_segment
from headwater.persist.state import CollectionState, State, bound

PADDING: Final = 64
"""Segments begin at multiples of this; a larger gap is a segment that was let go."""


@dataclass(frozen=True, slots=True)
class Use:
    """A part, and where the log refers to it."""

    part: Part
    collection: CollectionState
    batch: Batch | None
    """``None``: it is unsealed."""

    @property
    def what(self) -> str:
        """Name it."""
        place = "an unsealed write" if self.batch is None else f"batch {self.batch.no}"
        where = self.part.where
        source = f"object {where.key} at {where.offset}" if isinstance(where, Segment) else "inline"
        return f"part of {place} of collection {self.collection.name!r} ({source})"


class MissingObject(Exception):
    """The log refers to an object that is not there."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def uses(state: State) -> Iterator[Use]:
    """Yield every part of a state."""
    for _, collection in sorted(state.collections.items()):
        for batch in collection.batches:
            for part in batch.parts:
                yield Use(part, collection, batch)
        for unsealed in collection.unsealed:
            for part in unsealed.parts:
                yield Use(part, collection, None)


def check_segment(
    same: list[Use], state: State, *, blob: Blob, layouts: Layouts
) -> Iterator[Finding]:
    """Check all uses of one run of updates. Raises :class:`MissingObject`."""
    use = same[0]
    where = use.part.where
    if isinstance(where, Segment) and use.part.layout not in layouts:
        data = _fetch(blob, where)
        verify_segment(where, data, f"object {where.key} at {where.offset}")
        yield finding.error(
            use.what, f"layout {use.part.layout!r} is not known here: only its checksum was checked"
        )
        return
    # Without window and without evolution: the bytes as they were written.
    whole = msgspec.structs.replace(use.part, window=None)
    try:
        updates = read_part(
            whole,
            use.collection,
            fetch=lambda segment: _fetch(blob, segment),
            layouts=layouts,
            schema=use.part.schema,
        )
    except PartMissing as missing:
        raise MissingObject(missing.key) from missing
    for each in same:
        for problem in (*_facts(each.part, updates), *_times(each, updates, state)):
            yield finding.error(each.what, problem)


def _fetch(blob: Blob, segment: Segment) -> bytes:
    """Read, not map: a file that is cut while it is mapped would kill us."""
    data = blob.get_range(segment.key, segment.offset, segment.length)
    if data is None:
        raise MissingObject(segment.key)
    return data


def safely(same: list[Use], state: State, *, blob: Blob, layouts: Layouts) -> Iterator[Finding]:
    """Check all uses of one run of updates; whatever is raised on the way is a finding."""
    try:
        yield from check_segment(same, state, blob=blob, layouts=layouts)
    except MissingObject:
        raise
    except (HeadwaterError, pa.ArrowException, LookupError, ValueError, TypeError) as raised:
        yield finding.of(same[0].what, raised)


def _facts(part: Part, updates: pa.Table) -> Iterator[str]:
    """Compare what the log says of a part with its updates."""
    diffs, times = updates.column(DIFF), updates.column(TIME)
    found = {
        "rows": updates.num_rows,
        "diff_sum": pc.sum(diffs).as_py(),
        "time_min": pc.min(times).as_py(),
        "time_max": pc.max(times).as_py(),
    }
    for name, value in found.items():
        if getattr(part, name) != value:
            yield f"{name} is {value}, and the log says {getattr(part, name)}"
    for name, known in part.stats.items():
        if name not in updates.column_names:
            yield f"it has statistics of column {name!r}, which it does not have"
        else:
            yield from _statistics(name, updates.column(name), known)
    if part.consolidated and len(consolidation(updates)[0]) != updates.num_rows:
        yield "it is not consolidated, and the log says that it is"


def _statistics(name: str, column: Any, known: ColumnStats) -> Iterator[str]:
    """Statistics need not be tight; they must not exclude a value that is there."""
    if column.null_count != known.nulls:
        yield f"column {name!r} has {column.null_count} NULLs, and the log says {known.nulls}"
    values = column.drop_null()
    if pa.types.is_floating(values.type):
        nan = pc.is_nan(values)
        if known.upper is not None and pc.any(nan).as_py():
            yield f"column {name!r} has a NaN, and the log says it is at most {known.upper}"
        values = values.filter(pc.invert(nan))
    if not len(values):
        return
    bounds = pc.min_max(values)
    lowest, highest = bounds["min"].as_py(), bounds["max"].as_py()
    if known.lower is not None and lowest < known.lower:
        yield f"column {name!r} has {lowest!r}, and the log says it is at least {known.lower!r}"
    if known.upper is not None and highest > known.upper:
        yield f"column {name!r} has {highest!r}, and the log says it is at most {known.upper!r}"


def _times(use: Use, updates: pa.Table, state: State) -> Iterator[str]:
    """Times inside the batch's interval; or advanced to its since, wherever that is."""
    times = updates.column(TIME)
    if use.part.window is not None:
        lower, upper = use.part.window
        inside = pc.and_(pc.greater_equal(times, lower), pc.less(times, _long(upper)))
        times = times.filter(inside)
    if use.batch is None:
        upper = bound(state.upper(use.collection))
        early = times.filter(pc.less(times, _long(upper)))
        if len(early):
            yield f"it has an update at {early[0]}, which is before the sealed frontier {upper}"
        return
    lower, upper = bound(use.batch.lower), bound(use.batch.upper)
    since = bound(use.batch.since)
    early = times.filter(pc.less(times, _long(lower)))
    if len(early):
        yield f"it has an update at {early[0]}, which is before the batch's lower {lower}"
    beyond = pc.and_(pc.greater_equal(times, _long(upper)), pc.not_equal(times, _long(since)))
    late = times.filter(beyond)
    if len(late):
        yield f"it has an update at {late[0]}, which is not before the batch's upper {upper}"


def _long(time: int) -> Any:
    return pa.scalar(time, pa.int64())


def check_padding(
    key: str, segments: Iterable[Segment], size: int | None, blob: Blob
) -> Iterator[Finding]:
    """Check the zeros between segments; a longer gap is a segment nobody refers to any more."""
    end = 0
    ranges = sorted({(segment.offset, segment.length) for segment in segments})
    for offset, length in (*ranges, *(() if size is None else ((size, 0),))):
        if 0 < offset - end < PADDING:
            try:
                between = blob.get_range(key, end, offset - end)
            except ExternalError as raised:
                yield finding.of(f"object {key}", raised)
                return
            if between is not None and any(between):
                yield finding.error(f"object {key}", f"the padding at {end} is not zero")
        end = max(end, offset + length)


def groups(found: Iterable[Use]) -> list[list[Use]]:
    """Gather the uses of the same bytes, as the same updates of the same collection."""
    by_content: dict[tuple[Inline | Segment, int, int, bool, str], list[Use]] = {}
    for use in found:
        part = use.part
        content = (part.where, use.collection.id, part.schema, part.errors, part.layout)
        by_content.setdefault(content, []).append(use)
    return list(by_content.values())
