"""Which merges are asked for: few batches, little rewriting, history that shrinks."""

from __future__ import annotations

import msgspec

from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.persist.batch import Batch, Inline, Part
from headwater.persist.changes import Codec
from headwater.persist.state import CollectionState
from headwater.persist.trace import SMALL_ROWS, next_merge


def _part(rows: int, diff_sum: int) -> Part:
    return Part(
        Inline(b""), "inline", 0, errors=False, rows=rows, diff_sum=diff_sum, time_min=0, time_max=0
    )


def _consolidated(time: int, rows: int, diff_sum: int) -> Batch:
    """Return a batch as a step writes it: one part of one time, consolidated."""
    part = msgspec.structs.replace(
        _part(rows, diff_sum), time_min=time, time_max=time, consolidated=True
    )
    return Batch(time, Frontier.of(time), Frontier.of(time + 1), Frontier.of(0), (part,))


def _collection(*batches: Batch, since: int = 0) -> CollectionState:
    upper = batches[-1].upper if batches else Frontier.of(0)
    return CollectionState(
        id=GlobalId(1),
        name="c",
        schemas=(b"",),
        key=(),
        layout="parquet",
        codecs=(Codec("arrow", 1),),
        own_upper=upper,
        since=Frontier.of(since),
        batches=batches,
    )


def _batch(no: int, rows: int, since: int = 0, diff_sum: int | None = None) -> Batch:
    part = _part(rows, rows if diff_sum is None else diff_sum)
    return Batch(no, Frontier.of(no), Frontier.of(no + 1), Frontier.of(since), (part,))


def test_appending_leaves_logarithmically_many_batches_and_rewrites_each_row_a_few_times() -> None:
    """n batches of equal size: O(log n) remain, O(n log n) rows are rewritten."""
    appended, rows, rewritten, most = 2_000, 100, 0, 0
    sizes: list[int] = []
    for _ in range(appended):
        sizes.append(rows)
        while inputs := next_merge(_collection(*(_batch(n, size) for n, size in enumerate(sizes)))):
            first, count = inputs[0].no, len(inputs)
            total = sum(batch.rows for batch in inputs)
            rewritten += total
            sizes[first : first + count] = [total]
        most = max(most, len(sizes))
    assert sum(sizes) == appended * rows
    assert most <= 16
    assert rewritten <= 16 * appended * rows


def test_small_batches_wait_for_each_other_and_large_ones_do_not() -> None:
    for rows in (1, 100, 1_000):
        few = [_batch(no, rows) for no in range(3)]
        assert next_merge(_collection(*few)) == (), rows
        assert next_merge(_collection(*few, _batch(3, rows))) == (*few, _batch(3, rows)), rows
    large = [_batch(no, SMALL_ROWS // 2 + 1) for no in range(2)]
    assert next_merge(_collection(*large)) == tuple(large)
    # What waits is not more for a larger elder.
    assert next_merge(_collection(_batch(0, 10**6), _batch(1, 1_000), _batch(2, 900))) == ()


def test_a_batch_is_rewritten_once_its_history_is_over_and_would_mostly_cancel() -> None:
    updated = _batch(0, rows=1_000, diff_sum=10)
    assert next_merge(_collection(updated, since=0)) == ()
    assert next_merge(_collection(updated, since=1)) == (updated,)
    # Rewritten up to a since past its upper it is left alone, however far since goes on.
    assert next_merge(_collection(_batch(0, 1_000, since=1, diff_sum=10), since=9)) == ()
    # Nothing to gain where most updates are insertions.
    assert next_merge(_collection(_batch(0, 1_000, diff_sum=900), since=1)) == ()


def test_a_batch_of_one_time_is_not_rewritten_for_what_cannot_cancel() -> None:
    """A step retracts and inserts at one time: the sum of its diffs says nothing."""
    stepped = _consolidated(0, rows=1_000, diff_sum=0)
    assert next_merge(_collection(stepped, since=9)) == ()
    (part,) = stepped.parts
    for other in (
        (msgspec.structs.replace(part, time_max=1),),
        (msgspec.structs.replace(part, consolidated=False),),
        (msgspec.structs.replace(part, window=(0, 1)),),
        (part, part),
    ):
        batch = msgspec.structs.replace(stepped, parts=other)
        assert next_merge(_collection(batch, since=9)) == (batch,), other


def test_a_backlog_is_rewritten_a_few_times_only() -> None:
    """As appends leave it that were faster than the merges: many batches, all of one size."""
    appended, rows, rewritten = 1_000, 10_000, 0
    sizes = [rows] * appended
    while inputs := next_merge(_collection(*(_batch(n, size) for n, size in enumerate(sizes)))):
        first, count = inputs[0].no, len(inputs)
        total = sum(batch.rows for batch in inputs)
        rewritten += total
        sizes[first : first + count] = [total]
    assert sum(sizes) == appended * rows
    assert len(sizes) <= 16
    assert rewritten <= 3 * appended * rows
