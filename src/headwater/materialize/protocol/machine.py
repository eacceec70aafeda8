"""When each message may be said: the session as a table, for both sides.

A *phase* is what has been said so far in the transaction; a *signal* is a message, or the end of
one side's stream. What is not in :data:`TRANSITIONS` is not permitted, and whoever says it ends
the session. The same table serves both sides: each feeds it what it sends and what it receives, in
its own order. The two orders differ, because messages cross on the way; the table permits every
order that a correct peer can cause (proved by walking through all of them in ``test_machine.py``).

The rules, as the table has them:

- A stream first answers any number of Spec, Validate and Apply; Open turns it into a session.
- A transaction begins with Acknowledge and Acknowledged, in either order.
- Load follows Acknowledge and may run ahead of Acknowledged: the driver may stage such Loads and
  not evaluate them, so Loaded follows Acknowledged. **Flush is never said before Acknowledged**:
  until then the previous transaction may not be in the endpoint.
- A transaction may be empty: no Load, no Store, or neither.
- While the runtime stores, the driver is silent; it answers StartCommit with StartedCommit, and
  with that the next transaction begins.
- The runtime may end its stream where no request is open and before the first Load of a
  transaction. The driver may then still say Acknowledged, and must end its own.

Kept by:        :class:`Session`, one on each side of every transport.
Relied on by:   drivers and the runtime, which are written as if nothing else could happen.

What the messages of a transaction may *hold* is another matter: ``contents``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.materialize.protocol import messages
from headwater.materialize.protocol.messages import Message


class Side(enum.Enum):
    """Who speaks."""

    RUNTIME = "runtime"
    DRIVER = "driver"


class Signal(enum.Enum):
    """What one side tells the other; named as on the wire."""

    SPEC = "Spec"
    SPECIFIED = "Specified"
    VALIDATE = "Validate"
    VALIDATED = "Validated"
    APPLY = "Apply"
    APPLIED = "Applied"
    OPEN = "Open"
    OPENED = "Opened"
    ACKNOWLEDGE = "Acknowledge"
    ACKNOWLEDGED = "Acknowledged"
    LOAD = "Load"
    LOADED = "Loaded"
    FLUSH = "Flush"
    FLUSHED = "Flushed"
    STORE = "Store"
    START_COMMIT = "StartCommit"
    STARTED_COMMIT = "StartedCommit"
    RUNTIME_END = "end of the runtime's stream"
    DRIVER_END = "end of the driver's stream"


SIGNALS: Final[Mapping[type, Signal]] = {
    messages.Spec: Signal.SPEC,
    messages.Specified: Signal.SPECIFIED,
    messages.Validate: Signal.VALIDATE,
    messages.Validated: Signal.VALIDATED,
    messages.Apply: Signal.APPLY,
    messages.Applied: Signal.APPLIED,
    messages.Open: Signal.OPEN,
    messages.Opened: Signal.OPENED,
    messages.Acknowledge: Signal.ACKNOWLEDGE,
    messages.Acknowledged: Signal.ACKNOWLEDGED,
    messages.Load: Signal.LOAD,
    messages.LoadMany: Signal.LOAD,
    messages.Loaded: Signal.LOADED,
    messages.LoadedMany: Signal.LOADED,
    messages.Flush: Signal.FLUSH,
    messages.Flushed: Signal.FLUSHED,
    messages.Store: Signal.STORE,
    messages.StoreMany: Signal.STORE,
    messages.StartCommit: Signal.START_COMMIT,
    messages.StartedCommit: Signal.STARTED_COMMIT,
}

FROM_DRIVER: Final = frozenset(
    {
        Signal.SPECIFIED,
        Signal.VALIDATED,
        Signal.APPLIED,
        Signal.OPENED,
        Signal.ACKNOWLEDGED,
        Signal.LOADED,
        Signal.FLUSHED,
        Signal.STARTED_COMMIT,
        Signal.DRIVER_END,
    }
)


class Phase(enum.Enum):
    """What has been said so far."""

    IDLE = "nothing is asked"
    SPECIFYING = "Spec is unanswered"
    VALIDATING = "Validate is unanswered"
    APPLYING = "Apply is unanswered"
    OPENING = "Open is unanswered"
    BEGUN = "a transaction begins; nobody has acknowledged the last one"
    RUNTIME_ACKNOWLEDGED = "the runtime has acknowledged, the driver has not"
    DRIVER_ACKNOWLEDGED = "the driver has acknowledged, the runtime has not"
    ACKNOWLEDGED = "both have acknowledged; nothing is loaded"
    LOADING_AHEAD = "Loads run ahead of Acknowledged; they may be staged, not evaluated"
    LOADING = "Loads may be evaluated"
    FLUSHING_NOTHING = "Flush is unanswered; nothing was loaded"
    FLUSHING = "Flush is unanswered; Loadeds may be open"
    STORING = "the runtime stores, the driver is silent"
    COMMITTING = "StartCommit is unanswered"
    ENDING_UNACKNOWLEDGED = "the runtime has ended; the driver may still acknowledge"
    ENDING = "the runtime has ended, the driver must"
    ENDED = "both have ended"


TRANSITIONS: Final[Mapping[tuple[Phase, Signal], Phase]] = {
    (Phase.IDLE, Signal.SPEC): Phase.SPECIFYING,
    (Phase.SPECIFYING, Signal.SPECIFIED): Phase.IDLE,
    (Phase.IDLE, Signal.VALIDATE): Phase.VALIDATING,
    (Phase.VALIDATING, Signal.VALIDATED): Phase.IDLE,
    (Phase.IDLE, Signal.APPLY): Phase.APPLYING,
    (Phase.APPLYING, Signal.APPLIED): Phase.IDLE,
    (Phase.IDLE, Signal.OPEN): Phase.OPENING,
    (Phase.OPENING, Signal.OPENED): Phase.BEGUN,
    (Phase.BEGUN, Signal.ACKNOWLEDGE): Phase.RUNTIME_ACKNOWLEDGED,
    (Phase.BEGUN, Signal.ACKNOWLEDGED): Phase.DRIVER_ACKNOWLEDGED,
    (Phase.RUNTIME_ACKNOWLEDGED, Signal.ACKNOWLEDGED): Phase.ACKNOWLEDGED,
    (Phase.DRIVER_ACKNOWLEDGED, Signal.ACKNOWLEDGE): Phase.ACKNOWLEDGED,
    (Phase.RUNTIME_ACKNOWLEDGED, Signal.LOAD): Phase.LOADING_AHEAD,
    (Phase.LOADING_AHEAD, Signal.LOAD): Phase.LOADING_AHEAD,
    (Phase.LOADING_AHEAD, Signal.ACKNOWLEDGED): Phase.LOADING,
    (Phase.ACKNOWLEDGED, Signal.LOAD): Phase.LOADING,
    (Phase.LOADING, Signal.LOAD): Phase.LOADING,
    (Phase.LOADING, Signal.LOADED): Phase.LOADING,
    (Phase.ACKNOWLEDGED, Signal.FLUSH): Phase.FLUSHING_NOTHING,
    (Phase.FLUSHING_NOTHING, Signal.FLUSHED): Phase.STORING,
    (Phase.LOADING, Signal.FLUSH): Phase.FLUSHING,
    (Phase.FLUSHING, Signal.LOADED): Phase.FLUSHING,
    (Phase.FLUSHING, Signal.FLUSHED): Phase.STORING,
    (Phase.STORING, Signal.STORE): Phase.STORING,
    (Phase.STORING, Signal.START_COMMIT): Phase.COMMITTING,
    (Phase.COMMITTING, Signal.STARTED_COMMIT): Phase.BEGUN,
    (Phase.IDLE, Signal.RUNTIME_END): Phase.ENDING,
    (Phase.BEGUN, Signal.RUNTIME_END): Phase.ENDING_UNACKNOWLEDGED,
    (Phase.RUNTIME_ACKNOWLEDGED, Signal.RUNTIME_END): Phase.ENDING_UNACKNOWLEDGED,
    (Phase.DRIVER_ACKNOWLEDGED, Signal.RUNTIME_END): Phase.ENDING,
    (Phase.ACKNOWLEDGED, Signal.RUNTIME_END): Phase.ENDING,
    (Phase.ENDING_UNACKNOWLEDGED, Signal.ACKNOWLEDGED): Phase.ENDING,
    (Phase.ENDING_UNACKNOWLEDGED, Signal.DRIVER_END): Phase.ENDED,
    (Phase.ENDING, Signal.DRIVER_END): Phase.ENDED,
}


class ProtocolViolation(HeadwaterError):
    """The peer said what its phase does not permit. The session is over."""

    def __init__(self, phase: Phase, signal: Signal) -> None:
        super().__init__(
            f"the {sender(signal).value} sent {signal.value}, which is not permitted while "
            f"{phase.value}; permitted {_or(permitted(phase, sender(signal)))}"
        )
        self.phase = phase
        self.signal = signal


class OutOfTurn(InvalidUsage):
    """We were about to say what our phase does not permit; nothing was sent."""

    def __init__(self, phase: Phase, signal: Signal) -> None:
        super().__init__(f"{signal.value} is not permitted while {phase.value}")
        self.phase = phase
        self.signal = signal


def sender(signal: Signal) -> Side:
    """Return who alone can say this."""
    return Side.DRIVER if signal in FROM_DRIVER else Side.RUNTIME


def permitted(phase: Phase, side: Side) -> tuple[Signal, ...]:
    """Return what a side may say in a phase."""
    return tuple(
        signal for (before, signal) in TRANSITIONS if before is phase and sender(signal) is side
    )


@dataclass(frozen=True, slots=True)
class Session:
    """One side's view of a session. It makes no I/O: feed it what is sent and what is received."""

    side: Side
    phase: Phase = Phase.IDLE

    def sending(self, message: Message) -> Session:
        """Return the session after we said this; ask before it is sent."""
        return self._after(SIGNALS[type(message)], self.side)

    def received(self, message: Message) -> Session:
        """Return the session after the peer said this; ask before it is acted upon."""
        return self._after(SIGNALS[type(message)], self._peer)

    def ending(self) -> Session:
        """Return the session after we ended our stream."""
        return self._after(_end(self.side), self.side)

    def peer_ended(self) -> Session:
        """Return the session after the peer ended its stream."""
        return self._after(_end(self._peer), self._peer)

    @property
    def _peer(self) -> Side:
        return Side.DRIVER if self.side is Side.RUNTIME else Side.RUNTIME

    def _after(self, signal: Signal, speaker: Side) -> Session:
        following = TRANSITIONS.get((self.phase, signal))
        if following is None or sender(signal) is not speaker:
            if speaker is self.side:
                raise OutOfTurn(self.phase, signal)
            raise ProtocolViolation(self.phase, signal)
        # Most messages are one of many Loads or Stores, and change nothing.
        return self if following is self.phase else replace(self, phase=following)


def _end(side: Side) -> Signal:
    return Signal.RUNTIME_END if side is Side.RUNTIME else Signal.DRIVER_END


def _or(signals: tuple[Signal, ...]) -> str:
    return "is " + " or ".join(signal.value for signal in signals) if signals else "is nothing"


def diagram() -> str:
    """Return the table as a Mermaid state diagram; the documentation holds it."""
    return "\n".join(_diagram_lines()) + "\n"


def _diagram_lines() -> Iterator[str]:
    yield "stateDiagram-v2"
    yield f"    [*] --> {Phase.IDLE.name}"
    arrows: dict[tuple[Phase, Phase], list[Signal]] = {}
    for (before, signal), after in TRANSITIONS.items():
        arrows.setdefault((before, after), []).append(signal)
    for (before, after), signals in arrows.items():
        said = ", ".join(_arrow(signal) for signal in signals)
        yield f"    {before.name} --> {after.name}: {said}"
    yield f"    {Phase.ENDED.name} --> [*]"


def _arrow(signal: Signal) -> str:
    """Return a label that shows who speaks: ``→`` to the driver, ``←`` from it."""
    name = {Signal.RUNTIME_END: "end", Signal.DRIVER_END: "end"}.get(signal, signal.value)
    return f"{name} ←" if sender(signal) is Side.DRIVER else f"→ {name}"
