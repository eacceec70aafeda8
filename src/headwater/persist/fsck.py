"""Checking a location: every checksum and every invariant, by reading alone.

    check(blob, consensus, layouts) -> the findings, as they are found

What is checked, in this order:

- **the log** (``persist/fsck_log.py``): every entry's frame and checksum; sequence numbers without
  a gap; each entry follows from the state before it (role, epoch, what it refers to); no object
  tells of entries that it does not have;
- **rollups**: frame and checksum; equal to the replayed state wherever the log reaches back;
- **the state**: :func:`headwater.persist.state.violations`;
- **parts** (``persist/fsck_part.py``): every referenced object is there; checksum of every segment;
  every byte of its layout; rows, sum of diffs, times, statistics and the flag ``consolidated`` as
  the log has them; times inside the bounds of the batch; padding between segments is zero;
- **the rest**: objects nobody refers to, temporary files, names that are not ours (warnings).

Bytes nobody refers to (garbage not yet deleted, segments let go inside an object that is still in
use) have no meaning, and are not checked.

A writer may be at work meanwhile. What seems to be missing is therefore looked for again in the
newest state before it is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headwater.base.errors import HeadwaterError
from headwater.persist import finding, fsck_part, log
from headwater.persist.batch import Segment
from headwater.persist.finding import Finding
from headwater.persist.fsck_log import check_log
from headwater.persist.fsck_part import MissingObject, Use, check_padding, safely, uses
from headwater.persist.inspect import group_objects, list_temporary
from headwater.persist.layout import Layouts
from headwater.persist.location import Blob, Consensus, ObjectInfo
from headwater.persist.state import State, violations

__all__ = ["Finding", "Progress", "check"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the check of parts is."""

    parts_done: int
    parts_total: int
    bytes_done: int
    bytes_total: int
    rows_done: int = 0


def _unseen(progress: Progress) -> None:
    pass


def check(
    blob: Blob,
    consensus: Consensus,
    layouts: Layouts,
    on_progress: Callable[[Progress], None] = _unseen,
) -> Iterator[Finding]:
    """Yield everything that is wrong with a location, and change nothing."""
    # Listed first, state second: an object committed in between is then known to the state.
    objects = tuple(blob.list())
    checked = check_log(blob, consensus)
    yield from checked.findings
    state = checked.state
    if state is None:
        yield finding.error("the state", "it cannot be found; objects were not checked")
        return
    if state.seqno < 0 and not checked.findings:
        yield from _without_log(objects)
        return
    if not checked.at_head:
        yield finding.error("the state", f"entries after {state.seqno} could not be applied")
    elif lost := log.lost_entries(state, (info.key for info in objects)):
        yield finding.error("the log", lost)
    for problem in violations(state):
        yield finding.error("the state", problem)
    yield from _check_rollups(state, blob, consensus)
    yield from _check_parts(state, objects, blob, consensus, layouts, on_progress)
    if checked.at_head:
        yield from _unreferenced(state, objects)
    for temporary in list_temporary(blob):
        yield finding.warning(
            f"temporary file {temporary.key}", "left by a crash, or being written just now"
        )


def _without_log(objects: tuple[ObjectInfo, ...]) -> Iterator[Finding]:
    if lost := log.lost_entries(State(), (info.key for info in objects)):
        yield finding.error("the log", lost)
    for info in group_objects(State(), objects).foreign:
        yield _foreign(info)


def _check_rollups(state: State, blob: Blob, consensus: Consensus) -> Iterator[Finding]:
    for rollup in state.rollups:
        if blob.get_range(rollup.key, 0, 1) is None and _refers(rollup.key, blob, consensus):
            yield finding.error(f"rollup {rollup.key}", "missing")


def _check_parts(
    state: State,
    objects: tuple[ObjectInfo, ...],
    blob: Blob,
    consensus: Consensus,
    layouts: Layouts,
    on_progress: Callable[[Progress], None],
) -> Iterator[Finding]:
    groups = fsck_part.groups(uses(state))
    sizes = {info.key: info.size for info in objects}
    total = sum(same[0].part.size_bytes for same in groups)
    by_object: dict[str, list[Segment]] = {}
    missing: dict[str, list[Use]] = {}
    done = rows = 0
    for number, same in enumerate(groups):
        on_progress(Progress(number, len(groups), done, total, rows))
        where = same[0].part.where
        if isinstance(where, Segment):
            by_object.setdefault(where.key, []).append(where)
        try:
            yield from safely(same, state, blob=blob, layouts=layouts)
        except MissingObject as gone:
            missing.setdefault(gone.key, []).extend(same)
        done += same[0].part.size_bytes
        rows += same[0].part.rows
    on_progress(Progress(len(groups), len(groups), done, total, rows))
    for key, users in missing.items():
        if _refers(key, blob, consensus):
            names = ", ".join(sorted({repr(use.collection.name) for use in users}))
            yield finding.error(f"object {key}", f"missing; collection {names} refers to it")
    for key, segments in by_object.items():
        if key not in missing:
            yield from check_padding(key, segments, sizes.get(key), blob)


def _refers(key: str, blob: Blob, consensus: Consensus) -> bool:
    """Whether the newest state still refers to an object: it may have been collected since."""
    try:
        state = log.load(consensus, blob)
    except HeadwaterError:
        return True
    return key in state.references or any(rollup.key == key for rollup in state.rollups)


def _unreferenced(state: State, objects: tuple[ObjectInfo, ...]) -> Iterator[Finding]:
    groups = group_objects(state, objects)
    for info in groups.leaked:
        yield finding.warning(
            f"object {info.key}", "written and never committed; the next writer deletes it"
        )
    for info in groups.unfinished:
        yield finding.warning(
            f"object {info.key}", "not committed; left by a crash, or being written just now"
        )
    for info in groups.foreign:
        yield _foreign(info)


def _foreign(info: ObjectInfo) -> Finding:
    return finding.warning(f"object {info.key}", "not a name that Headwater gives")
