"""The runtime's end of a pipe to a connector: a child process with Flow's wire format.

The connector reads requests on its standard input and writes responses to its standard output; what
it writes to its standard error are logs, and the last line of them is what is told when it fails.
The end of its input is the end of the session, and it must then exit with status 0.

A connector is somebody else's program, and anything may happen: it may exit, hang, speak out of
turn or print what is no message. Each of these ends the session with an error that says so, and the
process is ended by us, by its id, with all that it has started: a command may be a shell's, and who
is left would hold the pipes open for ever.

A thread reads its output, so that it can speak while we do: neither side waits for the other to
take what it says.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from headwater.base.errors import HeadwaterError, Indeterminate
from headwater.materialize.protocol.contents import Contents
from headwater.materialize.protocol.machine import Session, Side
from headwater.materialize.protocol.messages import Message, Open, Request, Response
from headwater.materialize.wire.framing import Codec, FrameReader, frame
from headwater.materialize.wire.protobuf import MalformedMessage
from headwater.materialize.wire.runs import Splitting

LOG: Final = logging.getLogger(__name__)

RECEIVE_SECONDS: Final = 600.0
EXIT_SECONDS: Final = 60.0
"""How long a connector may take to exit: on a busy machine that of an interpreter takes long."""
JOIN_SECONDS: Final = 10.0
"""How long we wait for the last words of one that is gone."""
_CHUNK_BYTES: Final = 1 << 16
_LOG_LINES_MAX: Final = 20


class ConnectorFailed(Indeterminate):
    """A connector that is gone, or that we had to end."""

    def __init__(self, command: Sequence[str], what: str, last: str) -> None:
        told = f": {last}" if last else ""
        super().__init__(f"connector {' '.join(command)!r} {what}{told}")


class ChildProcess:
    """The runtime's end of a stream to a connector's process."""

    def __init__(
        self,
        command: Sequence[str],
        codec: Codec = Codec.PROTOBUF,
        environment: Mapping[str, str] | None = None,
        receive_seconds: float = RECEIVE_SECONDS,
    ) -> None:
        self._command = tuple(command)
        self._codec = codec
        self._receive_seconds = receive_seconds
        self._session = Session(Side.RUNTIME)
        self._contents = Contents(())
        self._splitting = Splitting(codec)
        self._said: queue.Queue[Message | HeadwaterError | None] = queue.Queue()
        self._logs: deque[str] = deque(maxlen=_LOG_LINES_MAX)
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **(environment or {}), "FLOW_RUNTIME_CODEC": codec.value},
                start_new_session=True,
            )
        except OSError as error:
            why = f"cannot be started: {error.strerror or error}"
            remedy = "COMMAND names a program on the server's PATH, or one by its whole path"
            raise ConnectorFailed(self._command, f"{why}; {remedy}", "") from error
        self._threads = [
            threading.Thread(target=work, name=f"headwater-connector-{what}", daemon=True)
            for what, work in (("responses", self._read), ("logs", self._read_logs))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def send(self, request: Request) -> None:
        """Say something to the connector."""
        if isinstance(request, Open) and request.materialization is not None:
            bindings = request.materialization.bindings
            self._contents = Contents([binding.delta_updates for binding in bindings])
        self._session = self._session.sending(request)
        self._contents.check(request)
        assert self._process.stdin is not None
        try:
            for single in self._splitting.split(request):
                self._process.stdin.write(frame(single, Side.RUNTIME, self._codec))
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._gone() from error

    def receive(self) -> Response:
        """Wait for what the connector says next."""
        try:
            said = self._said.get(timeout=self._receive_seconds)
        except queue.Empty as error:
            silent = (
                f"said nothing for {self._receive_seconds:g} s while {self._session.phase.value}"
            )
            raise ConnectorFailed(self._command, silent, self._last) from error
        if said is None:
            raise self._gone()
        if isinstance(said, HeadwaterError):
            raise said
        self._session = self._session.received(said)
        self._contents.check(said)
        return said  # type: ignore[return-value] # the table refuses a request

    def end(self) -> None:
        """End the stream where the protocol permits it; the connector must then exit."""
        self._session = self._session.ending()
        assert self._process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            try:
                status = self._process.wait(EXIT_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise ConnectorFailed(self._command, "did not exit", self._last) from error
            if status:
                raise self._gone()
        finally:
            self.abort()

    def abort(self) -> None:
        """End the process, whatever it was about to do."""
        if self._process.returncode is None:
            # Its id is its own as long as nobody has waited for it, and so is that of its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()  # Who is left of an ended one hears that this is the end.
        for thread in self._threads:
            thread.join(JOIN_SECONDS)
        if any(thread.is_alive() for thread in self._threads):
            return  # Somebody who left its group has the pipes; they are closed when it is gone.
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    @property
    def _last(self) -> str:
        return self._logs[-1] if self._logs else ""

    def _gone(self) -> ConnectorFailed:
        """Return why the connector says no more."""
        try:
            status = self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return ConnectorFailed(self._command, "closed its output", self._last)
        self._threads[1].join(JOIN_SECONDS)
        how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        return ConnectorFailed(self._command, how, self._last)

    def _read(self) -> None:
        assert self._process.stdout is not None
        reader = FrameReader(Side.DRIVER, self._codec)
        try:
            while chunk := self._process.stdout.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]
                for message in reader.feed(chunk):
                    self._said.put(message)
            reader.end()
        except MalformedMessage as error:
            self._said.put(error)
            # What comes after is no message either; but the pipe must not fill up.
            while self._process.stdout.read(_CHUNK_BYTES):
                pass
        self._said.put(None)

    def _read_logs(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            text = line.decode(errors="replace").strip()
            if text:
                self._logs.append(text)
                LOG.info("connector %d: %s", self.pid, text)
