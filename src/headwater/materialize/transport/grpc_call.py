"""A call of gRPC in both directions, as bytes: what is said goes into a queue, a thread listens.

gRPC takes requests from an iterator in a thread of its own; here that iterator is a bounded queue,
so that whoever speaks too fast waits. What comes is decoded in a second thread and waits in a
queue: neither side waits for the other to take what it says.

Addresses are ``host:port`` (or ``unix:path``). Without more there is no encryption: a connector
runs beside its runtime, as Flow's do. One that is elsewhere is reached by TLS (``tls``).

There is no greatest message in the protocol, so there is none here.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import grpc

from headwater.base.errors import HeadwaterError, Indeterminate
from headwater.materialize.drivers.fences import FencedOff
from headwater.materialize.transport.tls import ClientTls

RECEIVE_SECONDS: Final = 600.0
END_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 10.0
_REASON_SECONDS: Final = 10.0
_NO_METHOD: Final = "/materialize.Connector/-"
_AHEAD_MAX: Final = 1_000
"""How many messages wait at most to be sent."""
OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
)

Heard = TypeVar("Heard")


class PeerFailed(Indeterminate):
    """A connector at an address that cannot be reached, or that ended the call."""

    def __init__(self, address: str, what: str) -> None:
        super().__init__(f"connector at {address} {what}")


class PeerFenced(FencedOff):
    """A connector whose endpoint is another session's now."""


def failed(address: str, error: grpc.RpcError) -> HeadwaterError:
    """Return what gRPC says, as an error of ours."""
    if error.code() is grpc.StatusCode.ABORTED:
        return PeerFenced(f"connector at {address}: {error.details()}")
    return PeerFailed(address, f"failed: {error.code().name}: {error.details()}")


def connect(address: str, tls: ClientTls | None = None) -> grpc.Channel:
    """Connect to an address; wait until somebody is there."""
    if tls is None:
        channel = grpc.insecure_channel(address, options=OPTIONS)
    else:
        options = (*OPTIONS, *tls.options)
        channel = grpc.secure_channel(address, tls.credentials(), options=options)
    unready = _unready(channel)
    if unready is not None:
        channel.close()
        raise PeerFailed(address, f"cannot be reached{unready}")
    return channel


def _unready(channel: grpc.Channel) -> str | None:
    """Wait until somebody answers; return why nobody does.

    A call that no connector knows is answered as soon as there is a connection. (What gRPC has for
    this, ``channel_ready_future``, looks every 200 ms, and closing the channel waits for that.)
    """
    unknown = channel.unary_unary(_NO_METHOD)
    try:
        unknown(b"", timeout=CONNECT_SECONDS, wait_for_ready=True)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return f": {error.details()}"
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return _reason(unknown)
    return None


def _reason(unknown: Any) -> str:
    """Return why a channel is not ready: only a call that does not wait is told."""
    try:
        unknown(b"", timeout=_REASON_SECONDS)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return f": {error.details()}"
    return ""


class Call(Generic[Heard]):
    """One call, from the side that made it."""

    def __init__(
        self,
        address: str,
        channel: grpc.Channel,
        method: str,
        decode: Callable[[bytes], Heard],
    ) -> None:
        self._address = address
        self._decode = decode
        self._requests: queue.Queue[bytes | None] = queue.Queue(_AHEAD_MAX)
        self._said: queue.Queue[Heard | HeadwaterError | None] = queue.Queue()
        self._ended = threading.Event()
        self._call = channel.stream_stream(method)(self._sent())
        self._thread = threading.Thread(
            target=self._listen, name="headwater-grpc-responses", daemon=True
        )
        self._thread.start()

    def send(self, payload: bytes) -> None:
        """Send a message, or wait until there is room for it; raise if the call is over."""
        while not self._ended.is_set():
            try:
                self._requests.put(payload, timeout=0.1)
                return
            except queue.Full:
                continue
        raise self._over()

    def receive(self, waiting_for: str, seconds: float = RECEIVE_SECONDS) -> Heard:
        """Wait for what the peer says next."""
        try:
            said = self._said.get(timeout=seconds)
        except queue.Empty as error:
            silent = f"said nothing for {seconds:g} s while {waiting_for}"
            raise PeerFailed(self._address, silent) from error
        if said is None:
            self._said.put(None)
            raise PeerFailed(self._address, "ended the call")
        if isinstance(said, HeadwaterError):
            self._said.put(said)
            raise said
        return said

    def end(self) -> None:
        """Say no more, and wait until the peer has ended, too."""
        try:
            self._requests.put(None, timeout=END_SECONDS)
        except queue.Full as error:
            raise PeerFailed(self._address, "takes nothing any more") from error
        if not self._ended.wait(END_SECONDS):
            raise PeerFailed(self._address, "did not end the call")
        while (left := self._said.get()) is not None:
            if isinstance(left, HeadwaterError):
                raise left

    def cancel(self) -> None:
        """Break the call off."""
        self._call.cancel()
        self._ended.wait(END_SECONDS)

    def _over(self) -> HeadwaterError:
        while (left := self._said.get()) is not None:
            if isinstance(left, HeadwaterError):
                return left
        return PeerFailed(self._address, "ended the call")

    def _sent(self) -> Iterator[bytes]:
        while not self._ended.is_set():
            try:
                payload = self._requests.get(timeout=0.5)
            except queue.Empty:
                continue
            if payload is None:
                return
            yield payload

    def _listen(self) -> None:
        try:
            for payload in self._call:
                self._said.put(self._decode(payload))
        except grpc.RpcError as error:
            self._said.put(failed(self._address, error))
        except HeadwaterError as error:
            # What comes after is no message either.
            self._said.put(error)
            self._call.cancel()
        finally:
            self._said.put(None)
            self._ended.set()
            with suppress(queue.Full):
                self._requests.put_nowait(None)  # gRPC waits for what is said next.
