"""Large merges in a process of their own: low priority, killable, replaceable.

A merge holds the interpreter for long stretches, and the server answers its clients from the same
interpreter. So merges of more than ``Settings.child_merge_rows`` updates are handed to a child:

    parent -> child   one frame: the collection, the batches, the since, the name for the output
    child -> parent   one frame: descriptors of the parts it wrote, or why it could not
                      (and one without parts at the beginning: it is ready)

A frame is its length in 4 bytes, big endian, and msgpack. The child is an interpreter that we start
(never a fork: we have threads); it opens the blob by its address and makes the layouts by the names
of their classes. It writes parts and never commits anything.

**Killed at any point** it leaves at worst an object that nobody refers to, under the name of a step
that is closed: the sweep removes it. A dead child is replaced at the next merge. The child ends
when its input does, so it never outlives us by more than the merge in hand; in silence, also where
we are gone before it could say that it is ready.

Where there can be no child (the blob is in our memory, a layout is made of more than its class, no
interpreter can be started) the merge runs in our own process.

Memory: the child's, and bounded (``compact.PASS_ROWS_MAX``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
import weakref
from importlib import import_module
from itertools import count
from typing import IO, Any, Final

import msgspec

from headwater.base.errors import ExternalError, HeadwaterError, Indeterminate
from headwater.persist.batch import Batch, Part, Times
from headwater.persist.layout import Layouts
from headwater.persist.location import Blob
from headwater.persist.part import PartName
from headwater.persist.state import CollectionState, replace
from headwater.persist.unsealed import UnsealedWrites, dec_hook, enc_hook

NICENESS: Final = 10
_LENGTH: Final = struct.Struct(">I")


class Request(msgspec.Struct, frozen=True):
    """One merge."""

    collection: CollectionState
    inputs: tuple[Batch, ...]
    since: Times
    name: PartName


class Merged(msgspec.Struct, frozen=True, tag="merged"):
    """The parts that were written."""

    parts: tuple[Part, ...]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Why nothing is to be used; ``transient`` if another try may succeed."""

    reason: str
    transient: bool


Reply = Merged | Failed

_encoder = msgspec.msgpack.Encoder(enc_hook=enc_hook)
_requests = msgspec.msgpack.Decoder(Request, dec_hook=dec_hook)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


class ChildRefused(HeadwaterError):
    """The child could not do it, and would not on another try; we may see better why."""


def _send(pipe: IO[bytes], message: Request | Reply) -> None:
    data = _encoder.encode(message)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    """Return the next frame; ``None`` where the pipe ends, also in the middle of one."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    return data if len(data) == length else None


# ---- the parent's half -----------------------------------------------------------------------


def child_for(blob: Blob, layouts: Layouts) -> MergeChild | None:
    """Return a child for this blob, to be started when needed; ``None``: there can be none."""
    url = getattr(blob, "url", None)
    classes = layouts.classes()
    return MergeChild(url, classes) if isinstance(url, str) and classes is not None else None


class MergeChild:
    """A process that merges, started when it is first needed. For one thread; ``stop`` for any."""

    def __init__(self, url: str, layouts: tuple[str, ...]) -> None:
        self._arguments = (url, *layouts)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._process is None else self._process.pid

    def merge(
        self, collection: CollectionState, inputs: tuple[Batch, ...], since: Times, name: PartName
    ) -> tuple[Part, ...]:
        """Return the parts of the merged batch, written but not yet committed."""
        # The rest of the collection is none of its business, and may be large.
        bare = replace(
            collection,
            batches=(),
            unsealed=UnsealedWrites(),
            tokens=(),
            readers={},
            writers={},
        )
        process = self._running()
        assert process.stdin is not None
        data = None
        with contextlib.suppress(OSError):  # a broken pipe: it is gone
            _send(process.stdin, Request(bare, inputs, since, name))
            data = _receive(_output(process))
        if data is None:
            self._end_process()
            raise Indeterminate("the child process of a merge is gone; another will be started")
        match _replies.decode(data):
            case Merged(parts):
                return parts
            case Failed(reason, transient):
                raise Indeterminate(reason) if transient else ChildRefused(reason)

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise Indeterminate("the runtime is stopping")
            if self._process is not None:
                return self._process
            # What we can import, the child can: paths that were added while we run, too.
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            command = [sys.executable, "-m", __name__, *self._arguments]
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
                )
            except OSError as error:
                raise ChildRefused(f"no child process could be started: {error}") from error
            self._process = process
            weakref.finalize(self, _end, process)
        # Outside the lock: whoever stops us need not wait until it has started.
        if _receive(_output(process)) is None:
            self._end_process()
            raise ChildRefused("a child process ended as soon as it was started")
        return process

    def _end_process(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            _end(process)

    def stop(self) -> None:
        """Kill the child and start none any more; a merge in hand fails at once."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process is not None:
            process.kill()  # Its pipes end, and with them the merge that waits for it.


def _output(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()


# ---- the child's half ------------------------------------------------------------------------


def _layout(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)()


def main(url: str, *layouts: str) -> None:
    """Merge what is asked for until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A Ctrl-C is for our parent, who then ends us.
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Nobody else's words among our frames.

    from headwater.persist.blob import open_blob
    from headwater.persist.cache import SegmentCache
    from headwater.persist.compact import merge
    from headwater.persist.metrics import Metrics

    known = Layouts(*map(_layout, layouts))
    blob = open_blob(url)
    fetch = SegmentCache(blob, Metrics(), limit_bytes=0).fetch

    def answer(request: Request) -> Reply:
        names = (replace(request.name, attempt=f"{request.name.attempt}.{n}") for n in count())
        try:
            parts = merge(
                request.collection,
                request.inputs,
                request.since,
                blob=blob,
                fetch=fetch,
                layouts=known,
                name=lambda: next(names),
            )
        except Exception as error:  # noqa: BLE001 - told to the parent, who knows better
            reason = f"{type(error).__name__}: {error}"
            return Failed(reason, transient=isinstance(error, ExternalError))
        return Merged(parts)

    _send(replies, Merged(()))
    while (data := _receive(sys.stdin.buffer)) is not None:
        _send(replies, answer(_requests.decode(data)))
        import_module("pyarrow").default_memory_pool().release_unused()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BrokenPipeError:
        # Nobody is there any more to be told; nor is there at exit, when what is buffered goes out.
        os._exit(0)
