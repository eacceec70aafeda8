"""What every source promises, as checks on one source that somebody can grow.

A rig makes a source (again: as another process would), grows its upstream by something new, and
says which payload its records carry. See ``storage/source.py`` for the promise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from random import Random
from typing import Any, Protocol

from headwater.storage.offsets import NOTHING, Offsets
from headwater.storage.source import OFFSET, PARTITION, PLACE, Records, Reliance, Source


class Rig(Protocol):
    """An upstream that a test can grow.

    ``snapshots``: a range from the beginning is the contents at its end, all at one place.
    """

    snapshots: bool

    def source(self) -> Source: ...

    def grow(self, random: Random) -> None: ...


Record = tuple[str, str, int, Any]


def flat(records: Iterable[Records]) -> list[Record]:
    """Return every record: output, partition, offset, payload."""
    found = []
    for batch in records:
        assert batch.table.schema.names[:2] == PLACE.names
        assert not batch.table.column(PARTITION).null_count
        assert not batch.table.column(OFFSET).null_count
        for row in batch.table.to_pylist():
            place = row.pop(PARTITION), row.pop(OFFSET)
            found.append((batch.output, *place, tuple(row.items())))
    return found


def canonical(found: Iterable[Record], *, places: bool = True) -> Counter[str]:
    """Return how often each record is there; rows that come and go at one place are not."""
    counted: Counter[str] = Counter()
    for output, partition, offset, payload in found:
        row = dict(payload)
        diff = row.pop("__diff", 1)
        counted[f"{output} {partition if places else ''} {offset if places else ''} {row}"] += diff
    return Counter({record: count for record, count in counted.items() if count})


def some_cut(random: Random, probed: list[Offsets]) -> Offsets:
    """Return a frontier at which a range may be cut: where some probe was, in each partition."""
    return Offsets({p: random.choice(probed)[p] for p in probed[-1]})


def grown(rig: Rig, random: Random, times: int = 3) -> list[Offsets]:
    """Grow the upstream a few times, and probe it after each."""
    source, frontiers = rig.source(), [NOTHING]
    for _ in range(times):
        rig.grow(random)
        frontiers.append(source.probe())
    source.close()
    return frontiers


def check_probes_never_go_back(rig: Rig, random: Random) -> None:
    frontiers = grown(rig, random)
    for earlier, later in pairwise(frontiers):
        assert earlier <= later
    assert frontiers[-1] != NOTHING, "the rig never grew anything"
    again = rig.source()
    assert frontiers[-1] <= again.probe(), "another process sees at least as much"
    again.close()


def check_reads_are_definite(rig: Rig, random: Random) -> None:
    """The same range, in another process, later, after upstream has grown."""
    upper = grown(rig, random)[-1]
    first = rig.source()
    found = canonical(flat(first.read(NOTHING, upper)))
    assert found
    rig.grow(random)
    first.probe()
    assert canonical(flat(first.read(NOTHING, upper))) == found
    other = rig.source()
    assert canonical(flat(other.read(NOTHING, upper))) == found
    first.close()
    other.close()


def check_ranges_add_up(rig: Rig, random: Random) -> None:
    """A range cut anywhere has the records of the whole, none twice and none lost."""
    probed = grown(rig, random, 5)
    upper, source = probed[-1], rig.source()
    places = not rig.snapshots
    whole = canonical(flat(source.read(NOTHING, upper)), places=places)
    for _ in range(8):
        middle = some_cut(random, probed)
        parts = [*flat(source.read(NOTHING, middle)), *flat(source.read(middle, upper))]
        assert canonical(parts, places=places) == whole, f"cut at {middle}"
    assert flat(source.read(upper, upper)) == []
    source.close()


def check_places_are_in_range(rig: Rig, random: Random) -> None:
    frontiers = grown(rig, random)
    source = rig.source()
    for lower, upper in pairwise(frontiers):
        for _, partition, offset, _ in flat(source.read(lower, upper)):
            assert lower[partition] <= offset < upper[partition]
    source.close()


def check_commit_is_a_permission(rig: Rig, random: Random) -> None:
    """Told twice, told less than before, told nothing: what is beyond is there all the same."""
    frontiers = grown(rig, random)
    source = rig.source()
    rest = canonical(flat(source.read(frontiers[2], frontiers[3])))
    for told in (NOTHING, frontiers[1], frontiers[2], frontiers[1], frontiers[2]):
        source.commit(told)
    assert canonical(flat(source.read(frontiers[2], frontiers[3]))) == rest
    source.close()
    again = rig.source()
    again.commit(frontiers[2])
    assert frontiers[3] <= again.probe()
    assert canonical(flat(again.read(frontiers[2], frontiers[3]))) == rest
    again.close()


def check_it_declares_its_reliance(rig: Rig, random: Random) -> None:
    del random
    source = rig.source()
    assert isinstance(source.reliance, Reliance)
    assert source.name
    source.close()


CHECKS = [
    check_probes_never_go_back,
    check_reads_are_definite,
    check_ranges_add_up,
    check_places_are_in_range,
    check_commit_is_a_permission,
    check_it_declares_its_reliance,
]
