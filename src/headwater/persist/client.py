"""The public door of persist: open a location, create collections, write, seal, read.

    client = open_location("data")
    write, read = client.create_or_load("orders", schema, key=("id",))
    write.write(updates).result()          # durable, whether sealed or not
    write.seal(101).result()               # times before 101 are complete
    read.snapshot(100).to_table()          # definite: the same for ever

Calls return futures, take effect in the order in which they were made (over all clones of a
client), and are committed in groups. A future that resolved is durable. The location has one writer
at a time (the role ``server``) and any number of readers.
"""

from __future__ import annotations

import atexit
import operator
import secrets
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pyarrow as pa

from headwater.algebra.frontier import Frontier
from headwater.base.clock import Clock
from headwater.base.errors import InvalidUsage
from headwater.base.ids import BatchId, GlobalId, RoleName
from headwater.persist import evolution
from headwater.persist.batch import Part, Times
from headwater.persist.blob import open_blob
from headwater.persist.codec import ArrowCodec, Codec, check_reads, encoded, record_of
from headwater.persist.commands import (
    ARROW_CODEC,
    AllowCompaction,
    Atomic,
    Command,
    CompareAndAppend,
    Created,
    CreateOrLoad,
    Destroy,
    Destroyed,
    Loaded,
    Outcome,
    Seal,
    Write,
)
from headwater.persist.consensus import open_consensus
from headwater.persist.core import SERVER, Core, Settings, this_process
from headwater.persist.decision import collection_named, collection_of
from headwater.persist.errors import CodecMismatch, SchemaMismatch
from headwater.persist.evolution import ERROR_SCHEMA
from headwater.persist.layout import PARQUET, Layout, Layouts
from headwater.persist.location import Blob, Consensus
from headwater.persist.maintenance import Maintenance
from headwater.persist.notify import Notified, Notifier
from headwater.persist.part import Pending, check_updates
from headwater.persist.read import (
    Listen,
    Snapshot,
    check_readable,
    latest_readable,
    take_snapshot,
)

Rows = Iterable[tuple[Any, int, int]]
"""``(row, time, diff)``; the collection's codec knows the row (without one: a mapping)."""


def frontier(time: int | Times | None) -> Times:
    """Return a frontier: of one time, as given, or (``None``) closed."""
    if time is None:
        return Frontier.closed()
    return time if isinstance(time, Frontier) else Frontier.of(operator.index(time))


def open_location(
    location: str | Path = "",
    *,
    blob: str | Blob | None = None,
    consensus: str | Consensus | None = None,
    read_only: bool = False,
    role: RoleName = SERVER,
    reentrance_id: str = "",
    take_over: bool = False,
    holder: str = "",
    clock: Clock | None = None,
    settings: Settings | None = None,
    layouts: Sequence[Layout] = (),
    notified: bool = False,
) -> Client:
    """Open a location, as its one writer or read-only.

    ``location`` is a local directory (blob in ``blob/``, log in ``log.db``) unless ``blob`` and
    ``consensus`` say otherwise. A writer takes the role: free, or by the same ``reentrance_id``,
    or by ``take_over``; a reader takes nothing and writes nothing anywhere. A reader is independent
    unless ``notified``: then it connects to the writer, if that has ``Settings.notify``, and hears
    of every change at once.
    """
    if notified and not read_only:
        raise InvalidUsage("only a reader can be notified; open with read_only=True")
    ports = open_ports(location, blob=blob, consensus=consensus, read_only=read_only)
    core = Core(
        *ports,
        read_only=read_only,
        clock=clock,
        settings=settings,
        layouts=Layouts(*layouts),
    )
    try:
        if read_only:
            core.open_reader()
            if notified:
                Notified(core).start()
        else:
            core.open_writer(role, holder or this_process(), reentrance_id, take_over)
            if core.settings.notify:
                Notifier(core).start()
            if core.settings.maintenance:
                Maintenance(core).start()
    except BaseException:
        core.stop()  # also gives back the role, if it came so far
        raise
    # Whoever does not stop it loses nothing; an orderly end of the process frees the role.
    atexit.register(core.stop)
    core.on_stop.append(lambda: atexit.unregister(core.stop))
    return Client(core)


def open_ports(
    location: str | Path = "",
    *,
    blob: str | Blob | None = None,
    consensus: str | Consensus | None = None,
    read_only: bool = False,
) -> tuple[Blob, Consensus]:
    """Open the two ports of a location; see :func:`open_location`."""
    root = Path(location)
    if blob is None or isinstance(blob, str):
        blob = open_blob(blob or str(root / "blob"), read_only=read_only)
    if consensus is None or isinstance(consensus, str):
        url = consensus or f"sqlite://{quote(str((root / 'log.db').absolute()))}"
        try:
            consensus = open_consensus(url, read_only=read_only)
        except BaseException:
            blob.close()
            raise
    return blob, consensus


class Client:
    """A handle on a running location. Clones share it; the last one to go stops it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        core.clients.add(id(self))
        self._finalizer = weakref.finalize(self, _drop, core, id(self))
        self._finalizer.atexit = False

    @property
    def core(self) -> Core:
        """What all handles share: for the layers above and the tools."""
        return self._core

    def clone(self) -> Client:
        """Return another handle on the same runtime."""
        return Client(self._core)

    def stop(self) -> None:
        """Finish pending work, then take nothing new: further calls raise ``Stopped``."""
        self._core.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def create_or_load(
        self,
        name: str,
        schema: pa.Schema | None = None,
        *,
        key: Sequence[str] = (),
        layout: str = PARQUET.name,
        codec: Codec | None = None,
        timeline: str | None = None,
        start: int = 0,
    ) -> tuple[WriteHandle, ReadHandle]:
        """Create a collection, or find it: same layout, key, codec, and a compatible schema.

        Rows are those of ``codec``, which has its own schema; without one they are mappings.
        """
        _ = self._core.layouts[layout]
        if codec is None:
            if schema is None:
                raise SchemaMismatch(name, "neither a schema nor a codec was given")
            codec = ArrowCodec(schema)
        elif schema is not None and not schema.equals(codec.schema):
            raise SchemaMismatch(name, f"codec {record_of(codec)} has columns {codec.schema.names}")
        command = CreateOrLoad(
            name,
            evolution.to_bytes(codec.schema),
            tuple(key),
            layout,
            record_of(codec),
            timeline=timeline,
            start=start,
        )
        outcome = self._core.submit(command).result()
        assert isinstance(outcome, Created | Loaded)
        write = WriteHandle(self._core, outcome.id, codec)
        return write, ReadHandle(self._core, outcome.id, codec)

    def reader(self, name: str, codec: Codec | None = None) -> ReadHandle:
        """Return the read half of an existing collection (also on a read-only runtime)."""
        collection = collection_named(self._core.look(), name)
        if codec is not None:
            check_reads(name, collection.codec, codec)
        elif collection.codec == ARROW_CODEC:
            codec = ArrowCodec(evolution.from_bytes(collection.schemas[-1]))
        return ReadHandle(self._core, collection.id, codec)

    def destroy(self, name: str) -> bool:
        """Destroy a collection for ever; whether there was one."""
        outcome = self._core.submit(Destroy(name)).result()
        return isinstance(outcome, Destroyed) and outcome.existed

    def atomic(self) -> AtomicWrite:
        """Collect operations over many collections that commit as one."""
        return AtomicWrite(self._core)


def _drop(core: Core, client: int) -> None:
    core.clients.discard(client)
    if not core.clients:
        core.drop()


def new_token() -> BatchId:
    """Return a token that recognises one write for ever."""
    return BatchId(secrets.token_hex(8))


def pending_parts(
    core: Core,
    gid: GlobalId,
    updates: pa.Table | Rows,
    errors: pa.Table | None = None,
    codec: Codec | None = None,
) -> list[Pending]:
    """Check updates against the collection's schema, and get them ready to be written."""
    collection = collection_of(core.state, gid)
    schema = evolution.from_bytes(collection.schemas[-1])
    if codec is not None and record_of(codec) != collection.codec:
        raise CodecMismatch(collection.name, str(collection.codec), str(record_of(codec)))
    if not isinstance(updates, pa.Table):
        # A handle may be older than a column that was added: its rows leave that NULL.
        if codec is None or isinstance(codec, ArrowCodec):
            codec = ArrowCodec(schema)
        updates = encoded(collection.name, codec, updates)
    version = len(collection.schemas) - 1
    table = check_updates(collection.name, updates, schema)
    pending = [Pending(table, version, collection.layout, collection.key, errors=False)]
    if errors is not None:
        table = check_updates(collection.name, errors, ERROR_SCHEMA)
        pending.append(Pending(table, version, collection.layout, collection.key, errors=True))
    return [item for item in pending if item.updates.num_rows]


class WriteHandle:
    """The write half of a collection."""

    def __init__(self, core: Core, gid: GlobalId, codec: Codec | None = None) -> None:
        self._core = core
        self.id = gid
        self.codec = codec

    @property
    def upper(self) -> Times:
        """The sealed frontier, as this process knows it."""
        state = self._core.state
        return state.upper(collection_of(state, self.id))

    def write(
        self,
        updates: pa.Table | Rows,
        *,
        errors: pa.Table | None = None,
        token: BatchId | None = None,
    ) -> Future[Outcome]:
        """Make updates durable, at times not before the upper; sealing is another matter."""
        name = token or new_token()
        pending = pending_parts(self._core, self.id, updates, errors, self.codec)
        return self._core.submit_parts(pending, lambda parts: Write(self.id, name, parts))

    def seal(self, upper: int | Times | None) -> Future[Outcome]:
        """Declare every time before ``upper`` complete (``None``: for ever)."""
        return self._core.submit(Seal((self.id,), frontier(upper)))

    def allow_compaction(self, since: int | Times | None) -> Future[Outcome]:
        """Give up reading before ``since``; past the seal is allowed."""
        return self._core.submit(AllowCompaction(((self.id, frontier(since)),)))

    def compare_and_append(
        self,
        updates: pa.Table | Rows,
        lower: int | Times,
        upper: int | Times | None,
        *,
        errors: pa.Table | None = None,
        token: BatchId | None = None,
    ) -> Future[Outcome]:
        """Append the updates of ``[lower, upper)`` iff the upper is ``lower``: one atomic step."""
        name, low, high = token or new_token(), frontier(lower), frontier(upper)
        pending = pending_parts(self._core, self.id, updates, errors, self.codec)
        return self._core.submit_parts(
            pending, lambda parts: CompareAndAppend(self.id, name, low, high, parts)
        )


class AtomicWrite:
    """Operations over many collections that take effect together or not at all."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._pending: list[Pending] = []
        self._build: list[tuple[int, Any]] = []

    def write(
        self, handle: WriteHandle, updates: pa.Table | Rows, token: BatchId | None = None
    ) -> Self:
        """Write; the same collection may appear more than once."""
        name = token or new_token()
        return self._add(
            pending_parts(self._own(handle), handle.id, updates, codec=handle.codec),
            lambda parts: Write(handle.id, name, parts),
        )

    def write_created(
        self, created: CreateOrLoad, updates: pa.Table, token: BatchId | None = None
    ) -> Self:
        """Write to a collection that an operation before this one creates, with a given id."""
        assert created.id is not None, "nobody knows its id yet"
        gid, name = created.id, token or new_token()
        table = check_updates(created.name, updates, evolution.from_bytes(created.schema))
        pending = Pending(table, 0, created.layout, created.key, errors=False)
        return self._add([pending] if table.num_rows else [], lambda parts: Write(gid, name, parts))

    def seal(self, handles: Sequence[WriteHandle], upper: int | Times | None) -> Self:
        """Seal some collections at one time."""
        for handle in handles:
            self._own(handle)
        return self.add(Seal(tuple(handle.id for handle in handles), frontier(upper)))

    def allow_compaction(self, since: Mapping[WriteHandle, int]) -> Self:
        """Allow compaction of some collections."""
        return self.add(AllowCompaction(tuple((h.id, frontier(t)) for h, t in since.items())))

    def compare_and_append(
        self,
        handle: WriteHandle,
        updates: pa.Table | Rows,
        lower: int | Times,
        upper: int | Times | None,
        token: BatchId | None = None,
    ) -> Self:
        """Append; a mismatch of any makes the whole have no effect."""
        name, low, high = token or new_token(), frontier(lower), frontier(upper)
        return self._add(
            pending_parts(self._own(handle), handle.id, updates, codec=handle.codec),
            lambda parts: CompareAndAppend(handle.id, name, low, high, parts),
        )

    def add(self, command: Command) -> Self:
        """Add any command."""
        return self._add([], lambda _: command)

    def _own(self, handle: WriteHandle) -> Core:
        if handle._core is not self._core:
            raise SchemaMismatch("", "a handle of another runtime cannot join this atomic write")
        return self._core

    def _add(self, pending: list[Pending], build: Any) -> Self:
        self._pending.extend(pending)
        self._build.append((len(pending), build))
        return self

    def commit(self) -> Future[Outcome]:
        """Commit all of it, in the order given."""

        def command(parts: tuple[Part, ...]) -> Command:
            commands, at = [], 0
            for count, build in self._build:
                commands.append(build(parts[at : at + count]))
                at += count
            return Atomic(tuple(commands))

        return self._core.submit_parts(self._pending, command)


class ReadHandle:
    """The read half of a collection."""

    def __init__(self, core: Core, gid: GlobalId, codec: Codec | None = None) -> None:
        self._core = core
        self.id = gid
        self.codec = codec

    @property
    def upper(self) -> Times:
        """The sealed frontier."""
        state = self._core.state
        return state.upper(collection_of(state, self.id))

    @property
    def since(self) -> Times:
        """The first time at which it can be read."""
        return collection_of(self._core.state, self.id).since

    def snapshot(self, as_of: int | None = None, timeout: float | None = None) -> Snapshot:
        """Return the collection at ``as_of`` (default: the newest sealed time); waits for it."""
        if as_of is None:
            self._core.look()
            as_of = latest_readable(self._core, self.id)
        snapshot = take_snapshot(self._core, self.id, as_of, timeout, self._codec())
        if snapshot is None:
            raise TimeoutError(f"time {as_of} was not sealed within {timeout} s")
        return snapshot

    def listen(self, as_of: int) -> Listen:
        """Return the updates strictly after ``as_of``, as they are sealed."""
        collection = collection_of(self._core.state, self.id)
        check_readable(collection.name, collection, as_of)
        return Listen(self._core, collection, as_of, self._codec())

    def _codec(self) -> Codec | None:
        if not isinstance(self.codec, ArrowCodec):
            return self.codec
        # Columns may have been added since this handle was made; plain rows just have them.
        collection = collection_of(self._core.state, self.id)
        return ArrowCodec(evolution.from_bytes(collection.schemas[-1]))

    def snapshot_and_listen(
        self, as_of: int, timeout: float | None = None
    ) -> tuple[Snapshot, Listen]:
        """Return both, with nothing lost or doubled between them."""
        listen = self.listen(as_of)  # Registered first: its hold covers the snapshot's wait.
        return self.snapshot(as_of, timeout), listen
