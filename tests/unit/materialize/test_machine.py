"""The session table: everything legal, everything illegal, every crossing of messages."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol.machine import (
    SIGNALS,
    TRANSITIONS,
    OutOfTurn,
    Phase,
    ProtocolViolation,
    Session,
    Side,
    Signal,
    diagram,
    permitted,
    sender,
)
from headwater.materialize.protocol.messages import Message

PAGE = Path(__file__).parents[3] / "docs" / "design" / "20261115_materialization_protocol.md"
ENDS = {Signal.RUNTIME_END, Signal.DRIVER_END}
EXAMPLES: dict[Signal, Message] = {
    signal: kind() for kind, signal in SIGNALS.items() if "Many" not in kind.__name__
}
ILLEGAL = [pair for pair in product(Phase, Signal) if pair not in TRANSITIONS]


def _said(session: Session, signal: Signal) -> Session:
    """Feed a session one signal, as a sender or as a receiver."""
    ours = sender(signal) is session.side
    if signal in ENDS:
        return session.ending() if ours else session.peer_ended()
    message = EXAMPLES[signal]
    return session.sending(message) if ours else session.received(message)


@pytest.mark.parametrize(("phase", "signal"), ILLEGAL, ids=lambda value: value.name)
def test_what_the_table_lacks_is_refused(phase: Phase, signal: Signal) -> None:
    for side in Side:
        expected = OutOfTurn if sender(signal) is side else ProtocolViolation
        with pytest.raises(expected) as refused:
            _said(Session(side, phase), signal)
        assert isinstance(refused.value, OutOfTurn | ProtocolViolation)
        assert (refused.value.phase, refused.value.signal) == (phase, signal)
        assert signal.value in str(refused.value)
        assert phase.value in str(refused.value)


def test_what_the_table_has_is_permitted_on_both_sides() -> None:
    for (before, signal), after in TRANSITIONS.items():
        for side in Side:
            assert _said(Session(side, before), signal) == Session(side, after)


def test_a_side_cannot_say_what_is_the_others() -> None:
    with pytest.raises(OutOfTurn):
        Session(Side.DRIVER, Phase.IDLE).sending(m.Spec())
    with pytest.raises(ProtocolViolation):
        Session(Side.RUNTIME, Phase.IDLE).received(m.Spec())


def _story(*signals: Signal, side: Side = Side.RUNTIME) -> Phase:
    session = Session(side)
    for signal in signals:
        session = _said(session, signal)
    return session.phase


S = Signal
OPEN = (S.OPEN, S.OPENED)
BOTH = (S.ACKNOWLEDGE, S.ACKNOWLEDGED)
COMMIT = (S.START_COMMIT, S.STARTED_COMMIT)


@pytest.mark.parametrize(
    "signals",
    [
        (S.SPEC, S.SPECIFIED, S.VALIDATE, S.VALIDATED, S.APPLY, S.APPLIED, *OPEN),
        (*OPEN, S.ACKNOWLEDGED, S.ACKNOWLEDGE, S.FLUSH, S.FLUSHED, *COMMIT),
        (*OPEN, *BOTH, S.LOAD, S.LOADED, S.LOAD, S.FLUSH, S.LOADED, S.FLUSHED, S.STORE, *COMMIT),
        (*OPEN, *BOTH, S.FLUSH, S.FLUSHED, *COMMIT, *BOTH, S.FLUSH, S.FLUSHED, *COMMIT),
        (*OPEN, S.ACKNOWLEDGE, S.LOAD, S.LOAD, S.ACKNOWLEDGED, S.FLUSH, S.FLUSHED, *COMMIT),
    ],
)
def test_transactions_that_lead_to_the_next(signals: tuple[Signal, ...]) -> None:
    for side in Side:
        assert _story(*signals, side=side) is Phase.BEGUN


@pytest.mark.parametrize(
    ("signals", "said"),
    [
        ((*OPEN, S.ACKNOWLEDGE, S.FLUSH), S.FLUSH),
        ((*OPEN, S.ACKNOWLEDGE, S.LOAD, S.FLUSH), S.FLUSH),
        ((*OPEN, S.ACKNOWLEDGE, S.LOAD, S.LOADED), S.LOADED),
        ((*OPEN, S.ACKNOWLEDGED, S.ACKNOWLEDGED), S.ACKNOWLEDGED),
        ((*OPEN, S.LOAD), S.LOAD),
        ((*OPEN, *BOTH, S.LOADED), S.LOADED),
        ((*OPEN, *BOTH, S.FLUSHED), S.FLUSHED),
        ((*OPEN, *BOTH, S.FLUSH, S.LOAD), S.LOAD),
        ((*OPEN, *BOTH, S.FLUSH, S.FLUSHED, S.LOADED), S.LOADED),
        ((*OPEN, *BOTH, S.FLUSH, S.FLUSHED, S.START_COMMIT, S.ACKNOWLEDGED), S.ACKNOWLEDGED),
        ((*OPEN, *BOTH, S.FLUSH, S.FLUSHED, S.START_COMMIT, S.ACKNOWLEDGE), S.ACKNOWLEDGE),
        ((*OPEN, *BOTH, S.LOAD, S.RUNTIME_END), S.RUNTIME_END),
        ((*OPEN, *BOTH, S.FLUSH, S.FLUSHED, S.RUNTIME_END), S.RUNTIME_END),
        ((*OPEN, *BOTH, S.DRIVER_END), S.DRIVER_END),
        ((*OPEN, S.SPEC), S.SPEC),
    ],
    ids=lambda value: "-".join(s.name for s in value[2:]) if isinstance(value, tuple) else "",
)
def test_the_rules_by_example(signals: tuple[Signal, ...], said: Signal) -> None:
    assert signals[-1] is said
    for side in Side:
        with pytest.raises((OutOfTurn, ProtocolViolation)) as refused:
            _story(*signals, side=side)
        assert isinstance(refused.value, OutOfTurn | ProtocolViolation)
        assert refused.value.signal is said


def test_a_stream_ends_before_the_first_load() -> None:
    begun = (*OPEN, *BOTH, S.FLUSH, S.FLUSHED, *COMMIT)
    assert _story(S.RUNTIME_END, S.DRIVER_END) is Phase.ENDED
    for before in ((), (S.ACKNOWLEDGE,), (S.ACKNOWLEDGED,), BOTH):
        assert _story(*begun, *before, S.RUNTIME_END, S.DRIVER_END) is Phase.ENDED
    crossing = _story(*begun, S.ACKNOWLEDGE, S.RUNTIME_END, S.ACKNOWLEDGED, S.DRIVER_END)
    assert crossing is Phase.ENDED


IN_FLIGHT_MAX = 3


def _crossings() -> tuple[int, set[Phase]]:
    """Walk through every way in which two correct sides can speak over two pipes.

    A state is both phases and what is in flight, at most three messages each way. Every message
    that arrives must be permitted, whatever was said meanwhile; and from everywhere there must be a
    way on, until both have ended.
    """
    seen, met = set(), set()
    start = (Phase.IDLE, Phase.IDLE, (), ())
    todo: list[tuple[Phase, Phase, tuple[Signal, ...], tuple[Signal, ...]]] = [start]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        runtime, driver, to_driver, to_runtime = state
        met |= {runtime, driver}
        following = []
        if len(to_driver) < IN_FLIGHT_MAX:
            for signal in permitted(runtime, Side.RUNTIME):
                after = _said(Session(Side.RUNTIME, runtime), signal).phase
                following.append((after, driver, (*to_driver, signal), to_runtime))
        if len(to_runtime) < IN_FLIGHT_MAX:
            for signal in permitted(driver, Side.DRIVER):
                after = _said(Session(Side.DRIVER, driver), signal).phase
                following.append((runtime, after, to_driver, (*to_runtime, signal)))
        if to_driver:
            after = _said(Session(Side.DRIVER, driver), to_driver[0]).phase
            following.append((runtime, after, to_driver[1:], to_runtime))
        if to_runtime:
            after = _said(Session(Side.RUNTIME, runtime), to_runtime[0]).phase
            following.append((after, driver, to_driver, to_runtime[1:]))
        if not following:
            assert (runtime, driver) == (Phase.ENDED, Phase.ENDED), state
        todo += following
    return len(seen), met


def test_messages_that_cross_never_break_a_rule() -> None:
    states, met = _crossings()
    assert met == set(Phase), "a phase that two sides never reach"
    assert states > len(Phase)


def test_many_documents_are_as_many_messages() -> None:
    for many, one in ((m.LoadMany, m.Load), (m.LoadedMany, m.Loaded), (m.StoreMany, m.Store)):
        assert SIGNALS[many] is SIGNALS[one]
    assert {*SIGNALS.values()} | ENDS == {*Signal}


def test_the_page_shows_the_table() -> None:
    drawn = f"```mermaid\n{diagram()}```"
    page = PAGE.read_text("utf-8")
    assert drawn in page, f"put this into {PAGE.name}:\n{drawn}"
