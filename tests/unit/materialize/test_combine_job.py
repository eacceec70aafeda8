"""What is combined in tasks is what the driver process would have made of it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headwater.base.ids import GlobalId
from headwater.materialize import combine_job
from headwater.materialize.combine_job import CannotCombine, Combiner, sliced
from headwater.materialize.gather import gather
from headwater.materialize.key_range import KeyRange
from headwater.persist.client import Client, open_location
from headwater.persist.core import Settings
from headwater.persist.interval import Interval
from tests.seeds import seeds
from tests.unit.materialize.combine_story import LIMIT, SCHEMA, append, bindings, contents


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    settings = Settings(maintenance=False)  # So that all objects but those of parts are ours.
    with open_location(tmp_path / "data", settings=settings) as opened:
        yield opened


def elsewhere(work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
    """Run what another process would be sent; the first of them twice, as a lost answer would."""
    sent = [pickle.dumps(one) for one in work]
    if sent:
        pickle.loads(sent[0])("lost")
    return [pickle.loads(one)(f"{number}") for number, one in enumerate(sent)]


@pytest.mark.parametrize("seed", seeds(3, 100))
def test_tasks_and_the_driver_process_make_the_same(
    client: Client, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    write, read = client.create_or_load("c", SCHEMA)
    for time in range(1, 4):
        rows = [
            (k, f"p{random.randrange(30)}", random.randrange(-5, 5), 1)
            for k in random.sample(range(time * 1_000, time * 1_000 + 500), 400)
        ]
        append(write, time, [*rows, *rows[:50], *((*row[:3], -1) for row in rows[:50])])
    monkeypatch.setattr(combine_job, "SLICES_MIN", random.choice([1, 3, 7]))
    ranges = KeyRange.tiling(random.choice([1, 2, 3]))
    combiner = Combiner(client.core, elsewhere, ranges, rows_min=1)
    before = {found.key for found in client.core.blob.list("")}
    for bound in bindings(read.id):
        interval = Interval(client.core, read.id, 1, 4)
        found: list[tuple[object, ...]] = []
        for key_range in ranges:
            made = combiner.run(bound, interval, 4, key_range, LIMIT)
            here = gather(bound, interval, 4, key_range, LIMIT)
            assert made is not None
            assert (made.max_key, made.empty) == (here.max_key, here.empty)
            said = contents(made)
            assert said == contents(here)
            found += said
        assert len(found) > 25
    # What was written for it is gone, but for what the lost attempts have left, to be swept.
    left = {found.key for found in client.core.blob.list("")} - before
    assert all(key.endswith(".lost") for key in left)


def test_one_job_is_for_all_shards(client: Client) -> None:
    write, read = client.create_or_load("c", SCHEMA)
    append(write, 1, [(k, "p", k, 1) for k in range(3_000)])
    jobs: list[int] = []

    def counted(work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
        jobs.append(len(work))
        return elsewhere(work)

    ranges = KeyRange.tiling(4)
    combiner = Combiner(client.core, counted, ranges, rows_min=1)
    bound = bindings(read.id)[0]
    interval = Interval(client.core, read.id, 1, 2)
    runs = [combiner.run(bound, interval, 2, one, LIMIT) for one in ranges]
    assert len(jobs) == 2
    assert sum(len(contents(run)) for run in runs if run is not None) == 3_000
    assert combiner.run(bound, interval, 2, ranges[0], LIMIT) is not None, "a session may return"
    assert Combiner(client.core, counted, ranges).run(bound, interval, 2, ranges[0], LIMIT) is None


def test_a_row_that_cannot_be_delivered_is_named(client: Client) -> None:
    write, read = client.create_or_load("c", SCHEMA)
    rows = [(k, "p", k, 1) for k in range(3_000)]
    append(write, 1, [*rows, (7, "q", 0, 1)])
    combiner = Combiner(client.core, elsewhere, (KeyRange.full(),), rows_min=1)
    interval = Interval(client.core, read.id, 1, 2)
    with pytest.raises(CannotCombine, match=r"two rows have the key \(7,\)"):
        combiner.run(bindings(read.id)[0], interval, 2, KeyRange.full(), LIMIT)


def test_slices_tile_a_range() -> None:
    for key_range in (*KeyRange.tiling(3), KeyRange.full(), KeyRange(5, 6)):  # type: ignore[arg-type]
        for count in (1, 2, 3, 10):
            found = sliced(key_range, count)
            assert (found[0].begin, found[-1].end) == (key_range.begin, key_range.end)
            assert all(a.end + 1 == b.begin for a, b in pairwise(found))


def test_rows_of_one_key_have_an_order_of_their_own() -> None:
    columns = {"k": [3, 1, 2], "who": ["p"] * 3, "n": [7, 8, 9]}
    rows = pa.table(columns | {"__time": [1] * 3, "__diff": [1] * 3})
    for bound in bindings(GlobalId(1))[1:]:
        made = [
            bound.ordered(rows.take(pa.array(order)), 2, KeyRange.full())
            for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2])
        ]
        assert made[0].to_pylist() == made[1].to_pylist() == made[2].to_pylist()
