"""What a run does with each dataset, decided from what is there and what was asked for."""

from __future__ import annotations

import pytest

from headwater.compute.declared.elements import OutputKind
from headwater.pipelines.plan import CannotRun, Present, Selection, Wanted, decided

VIEW: OutputKind = "materialized view"
TABLE: OutputKind = "streaming table"

#   orders ──▶ raw (stream) ──▶ clean ──▶ totals
#                    └────────▶ copy (stream)       other
PIPELINE = (
    Wanted("raw", TABLE, ("orders",), ("orders",)),
    Wanted("clean", VIEW, ("raw",)),
    Wanted("totals", VIEW, ("clean",)),
    Wanted("copy", TABLE, ("raw",), ("raw",)),
    Wanted("other", VIEW),
)
NAMES = tuple(each.name for each in PIPELINE)
THERE = dict.fromkeys(NAMES, Present())


def actions(present: dict[str, Present], selection: Selection | None = None) -> list[str]:
    return [each.action for each in decided(PIPELINE, present, selection or Selection())]


def test_everything_is_new() -> None:
    assert actions({}) == ["create"] * 5


def test_nothing_changed() -> None:
    assert actions(THERE) == ["keep"] * 5


def test_news_go_as_far_as_they_are_read() -> None:
    news = {**THERE, "raw": Present(news="orders has new rows")}
    assert actions(news) == ["append", "maintain", "maintain", "append", "keep"]
    made = decided(PIPELINE, news, Selection())
    assert [each.because for each in made[:3]] == [
        "orders has new rows",
        "raw changes",
        "clean changes",
    ]


def test_a_changed_definition_is_computed_from_scratch_and_what_reads_it() -> None:
    changed = {**THERE, "clean": Present(same=False)}
    assert actions(changed) == ["keep", "replace", "rebuild", "keep", "keep"]
    # Also if only the changed one was asked for: it cannot go on over what is gone.
    assert actions(changed, Selection(refresh=("clean",))) == [
        *("skip", "replace", "rebuild", "skip", "skip")
    ]


def test_only_what_was_asked_for() -> None:
    changed = {**THERE, "clean": Present(same=False), "other": Present(news="x")}
    assert actions(changed, Selection(refresh=("other",))) == ["skip"] * 4 + ["maintain"]
    assert actions({}, Selection(refresh=("other",))) == ["skip"] * 4 + ["create"]
    with pytest.raises(CannotRun, match="'clean', which has not been made yet"):
        decided(PIPELINE, {}, Selection(refresh=("totals",)))


def test_a_full_refresh() -> None:
    assert actions(THERE, Selection(full_all=True)) == [
        *("refill", "replace", "rebuild", "refill", "replace")
    ]
    assert actions(THERE, Selection(full=("raw", "copy"))) == [
        *("refill", "skip", "skip", "refill", "skip")
    ]
    with pytest.raises(CannotRun, match="add --full-refresh copy"):
        decided(PIPELINE, THERE, Selection(refresh=("copy",), full=("raw",)))


def test_a_stream_of_what_is_computed_from_scratch_cannot_go_on() -> None:
    pipeline = (Wanted("v", VIEW), Wanted("s", TABLE, ("v",), ("v",)))
    changed = {"v": Present(same=False), "s": Present()}
    with pytest.raises(CannotRun, match=r"'v' is computed from scratch \(its definition changed\)"):
        decided(pipeline, changed, Selection())
    made = decided(pipeline, changed, Selection(refresh=("v",), full=("s",)))
    assert [each.action for each in made] == ["replace", "refill"]


def test_a_streaming_table_keeps_its_columns() -> None:
    with pytest.raises(CannotRun, match="DROP TABLE raw CASCADE"):
        decided(PIPELINE, {**THERE, "raw": Present(same=False)}, Selection())


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(CannotRun, match="no dataset 'totls'; perhaps 'totals'"):
        decided(PIPELINE, THERE, Selection(refresh=("totls",)))
    with pytest.raises(CannotRun, match="--full-refresh-all is everything"):
        Selection(full=("raw",), full_all=True)
    with pytest.raises(CannotRun, match="in both"):
        Selection(refresh=("raw",), full=("raw",))
