"""Carrying a session in a task: the task's end of it.

    session ─▶ task     Begin | Deliver | First | Settle | End | Committed | Stop       pickled
    task    ─▶ session  Arrived | Begun | Commit | Done | Failed                        msgpack

The task dials the session, is told what to do and does it as anybody would, over a stream of its
own (:class:`~.courier.Here`); each request has one answer, before which the task may ask for any
number of commits. **It commits nothing itself**: its recovery log is the session's, which asserts
its epoch in our own log. A task takes values from the process that started it; that process takes
only plain data from a task.

A session is one task's. A second attempt (Spark tries again what failed, or runs a twin of what is
slow) finds the session taken or over: it waits for the end of it and does nothing. So an attempt
that was given up can do no more than it could before, and whoever follows it is a new session.

Invariant:      when a task is told Committed, its entry is in the log; when it is not, it does
                nothing more at the endpoint but break its stream off.
Kept by:        :func:`carry`. Relied on by: ``in_task``.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from headwater.base.decoding import from_msgpack
from headwater.base.errors import HeadwaterError
from headwater.materialize.channel import Channel, ChannelClosed, dial
from headwater.materialize.checkpoint import Position
from headwater.materialize.combine import ColumnsChanged
from headwater.materialize.courier import Carried, Charge, Here
from headwater.materialize.definition import Endpoint
from headwater.materialize.delivery import Stream
from headwater.materialize.drivers.fences import FencedOff
from headwater.materialize.recovery import RecoveryEntry
from headwater.materialize.sent import Sent, SentDifference
from headwater.materialize.streams import stream_to
from headwater.persist.errors import Stopped

# ---- towards the task ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """Open the key range."""

    charge: Charge
    endpoint: Endpoint
    entry: RecoveryEntry
    """What the log has of the shard."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Deliver what was taken of each binding."""

    upper: int
    taken: tuple[Sent | SentDifference, ...]
    with_others: bool


@dataclass(frozen=True, slots=True)
class First:
    """Deliver the next part of the first snapshot."""

    time: int
    snapshots: tuple[Sent, ...]
    """Empty: those of before."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Let the driver apply the last transaction."""


@dataclass(frozen=True, slots=True)
class End:
    """End in good order."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The entry is in the log."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Break off reading, if that is what the task is about."""


Request = Begin | Deliver | First | Settle | End | Committed | Stop

# ---- towards the session -------------------------------------------------------------------------


class Arrived(msgspec.Struct, frozen=True, tag="arrived"):
    """Who has come."""

    pid: int
    attempt: str


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """The key range is open, at this position."""

    position: Position | None


class Commit(msgspec.Struct, frozen=True, tag="commit"):
    """Make an entry durable."""

    entry: RecoveryEntry
    acknowledged: Position | None


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It is done, and this is what became of it, if it was a delivery."""

    carried: Carried | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """It cannot be done; the task ends."""

    kind: str
    text: str
    trace: str = ""
    """Where, if nobody meant to raise it."""


Answer = Arrived | Begun | Commit | Done | Failed


def read_answer(data: bytes) -> Answer:
    """Return what a task has said."""
    try:
        answer: Answer = from_msgpack(data, cast("Any", Answer))
    except msgspec.DecodeError as error:
        raise ChannelClosed(f"the task said what it cannot say: {error}") from None
    return answer


_KINDS: Final[dict[str, type[HeadwaterError]]] = {
    "fenced": FencedOff,
    "columns": ColumnsChanged,
    "stopped": Stopped,
}
"""What the runtime does not treat like any other failure."""


class TaskFailed(HeadwaterError):
    """What a task could not do."""


def failed(error: Exception) -> Failed:
    """Return what is told of an error."""
    for kind, of in _KINDS.items():
        if isinstance(error, of):
            return Failed(kind, str(error))
    if isinstance(error, HeadwaterError):
        return Failed("", str(error) or type(error).__name__)
    return Failed("", f"{type(error).__name__}: {error}", traceback.format_exc())


def error_of(told: Failed) -> HeadwaterError:
    """Return what is raised where it was told."""
    kind = _KINDS.get(told.kind, TaskFailed)
    # By its words alone: they were made where its values are.
    return kind.__new__(kind, told.text)


# ---- in the task ---------------------------------------------------------------------------------

ToDriver = Callable[[Endpoint], Stream]


def carry(
    host: str,
    port: int,
    session: bytes,
    secret: bytes,
    attempt: str,
    connect: ToDriver = stream_to,
) -> bytes:
    """Carry a session, until it is over; if it is not to be had, until that is certain.

    Returns nothing, and whatever fails is told to the session: that Spark tries it again would help
    nobody.
    """
    try:
        channel = dial(host, port, session, secret)
    except (OSError, ChannelClosed):
        return b""  # The session is over.
    with closing(channel):
        _Carrying(channel, connect).run(attempt)
    return b""


class _Carrying:
    """One session, as the task sees it; towards the courier it is the recovery log."""

    def __init__(self, channel: Channel, connect: ToDriver) -> None:
        self._channel = channel
        self._connect = connect
        self._stopping = False
        self._courier: Here | None = None
        self.entry = RecoveryEntry()

    def run(self, attempt: str) -> None:
        """Do what is asked for until the end."""
        try:
            self._tell(Arrived(os.getpid(), attempt))
            while self._do(self._asked()):
                pass
        except ChannelClosed:
            self._abort()
        except Exception as error:  # noqa: BLE001 - told to the session, which knows what to do
            told = failed(error)
            # First, or the next session might find what this one has begun.
            self._abort()
            with suppress(ChannelClosed):
                self._tell(told)

    def _do(self, request: Request) -> bool:
        """Do one thing; return whether more will follow."""
        match request:
            case Begin(charge, endpoint, entry):
                self.entry = entry
                self._courier = courier = Here(self._connect(endpoint))
                courier.open(charge, self, self._check)
                self._tell(Begun(courier.position))
            case Deliver(upper, taken, with_others):
                self._tell(Done(self._open.deliver(upper, taken, with_others=with_others)))
            case First(time, snapshots):
                self._tell(Done(self._open.first(time, snapshots)))
            case Settle():
                self._open.settle()
                self._tell(Done())
            case End():
                self._open.end()
                self._courier = None
                self._tell(Done())
                return False
            case _:
                raise ChannelClosed(f"{type(request).__name__} is out of turn")
        return True

    @property
    def _open(self) -> Here:
        if self._courier is None:
            raise ChannelClosed("the key range was not opened")
        return self._courier

    def commit(self, entry: RecoveryEntry, acknowledged: Position | None) -> None:
        """Have an entry made durable by the session."""
        self._tell(Commit(entry, acknowledged))
        if not isinstance(self._asked(), Committed):
            raise ChannelClosed("a commit was not answered")
        self.entry = entry

    def _check(self) -> None:
        """Break off reading if the session wants us to, or is gone."""
        while not self._stopping and self._channel.readable():
            self._take_notice(self._received())
        if self._stopping:
            raise Stopped

    def _asked(self) -> Request:
        while isinstance(request := self._received(), Stop):
            self._stopping = True
        return request

    def _take_notice(self, request: Request) -> None:
        if not isinstance(request, Stop):
            raise ChannelClosed(f"{type(request).__name__} is out of turn")
        self._stopping = True

    def _received(self) -> Request:
        # It was sealed by the process that has sent us this code.
        request: Request = pickle.loads(self._channel.receive())  # noqa: S301
        return request

    def _tell(self, answer: Answer) -> None:
        self._channel.send(msgspec.msgpack.encode(answer))

    def _abort(self) -> None:
        if self._courier is not None:
            with suppress(Exception):
                self._courier.abort()
