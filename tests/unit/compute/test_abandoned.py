"""When a context is of no use any more, as a function of what was seen of it."""

from __future__ import annotations

from headwater.compute.abandoned import ALONE, ALONE_SECONDS, STOPPED, Look, Watch

WORKING = Look(stopped=False, executors=2, waiting=True)
ALL_LOST = Look(stopped=False, executors=0, waiting=True)
IDLE = Look(stopped=False, executors=0, waiting=False)
GONE = Look(stopped=True, executors=0, waiting=False)


def told(*seen: tuple[float, Look | None]) -> list[str | None]:
    watch = Watch()
    return [watch.why(look, now) for now, look in seen]


def test_a_stopped_context_is_looked_at_twice() -> None:
    assert told((0, WORKING), (2, GONE), (4, GONE)) == [None, None, STOPPED]
    assert told((0, WORKING), (2, GONE), (4, None)) == [None, None, None], "it is ending by itself"


def test_stages_that_nobody_runs_any_more() -> None:
    late = 10 + ALONE_SECONDS
    seen = told((0, WORKING), (10, ALL_LOST), (late - 1, ALL_LOST), (late, ALL_LOST))
    assert seen == [None, None, None, ALONE]


def test_an_executor_that_comes_in_time() -> None:
    late = ALONE_SECONDS - 1
    seen = told(
        (0, WORKING), (1, ALL_LOST), (late, WORKING), (late + 2, ALL_LOST), (late + 9, IDLE)
    )
    assert seen == [None] * 5


def test_a_queue_may_be_long() -> None:
    assert told((0, ALL_LOST), (9 * ALONE_SECONDS, ALL_LOST)) == [None, None]


def test_executors_may_go_while_there_is_nothing_to_do() -> None:
    late = 9 * ALONE_SECONDS
    assert told((0, WORKING), (1, IDLE), (late, IDLE), (late + 2, ALL_LOST)) == [None] * 4
