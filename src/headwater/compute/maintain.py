"""``maintain_view`` of the formalism: read capabilities in, a view, read capabilities out.

    maintain_view([ReadCapability], View, [WriteCapability | None]) -> [ReadCapability]

A :class:`View` names its inputs, one per read capability, and its outputs, each a query over these
names. All outputs start at one time, the *join* of the inputs' frontiers: the first at which every
input may be read. They are installed by one log entry, so all of them are there or none.

**Inputs.** The capabilities are *taken over*: the entry that installs the view validates and drops
them and opens the view's own holds at the start. Whoever wants to read on clones them before. The
holds move only with what is committed: an output whose upper is ``u`` holds its inputs at
``u - 1``. That is far enough for recovery because a durable output is there up to ``u``: nothing
before is ever computed again. An input that no output reads is let go at once.

**Outputs.** With a write capability, an output goes into that collection: it must be the only one,
at the start, and the collection empty and with the view's columns. It is taken over too, so that
nobody else writes there. Without one, compute introduces a collection. Either way the output is a
collection like any other: it can be subscribed to and its read capabilities acquired, downgraded
and dropped; the write capability that can be acquired is empty.

**Durable or not.** With ``durable=False`` the outputs, and all state, are volatile collections
(``persist/volatile.py``): their ids, their read capabilities and so their ``since`` are durable, as
is the view; what they hold is this process's, and is computed again by the next one
(``compute/renew.py``), the same at every time from ``since`` on. For that the inputs are held at
the meet of ``u - 1`` and the output's ``since``: whoever reads such an output downgrades its
capability, or history is kept for ever. Other processes are refused to read it.

**The end.** A view lives until it is dropped by name, or until the last read capability of its
output is gone: what nobody can ever read again is not computed (:func:`is_unreadable`). A
collection that the caller gave is then closed and stays; one that compute introduced goes.

:class:`Validation` decides the same command on the newest state and has no effect.

Kept by: this module. Relied on by: the adapter (``CREATE INDEX``, materialized views) and Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from headwater.algebra.frontier import Frontier
from headwater.base.errors import InvalidUsage
from headwater.base.ids import Epoch, GlobalId
from headwater.collection.capability import ReadCapability, WriteCapability, new_token
from headwater.collection.collections import Collections
from headwater.collection.commands import Commands, drop_command
from headwater.compute import definition
from headwater.compute.definition import Definition
from headwater.compute.install import (
    Existing,
    Installer,
    Introduced,
    Wanted,
    reserving,
)
from headwater.compute.query import Query
from headwater.persist.batch import Times
from headwater.persist.client import Client
from headwater.persist.commands import (
    Atomic,
    Command,
    OpenReader,
    RenewReader,
    ReserveId,
    RetireWriter,
)
from headwater.persist.decide import decide
from headwater.persist.decision import collection_of
from headwater.persist.errors import InvalidCapability
from headwater.persist.state import CollectionState, State


class InvalidView(InvalidUsage):
    """A view that contradicts itself or what it is given."""


@dataclass(frozen=True, slots=True)
class Output:
    """One output: what the view is called, and its query over the names of the inputs."""

    name: str
    query: Query


@dataclass(frozen=True, slots=True)
class View:
    """Names for the inputs, in the order of their capabilities, and the outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[Output, ...]

    def __post_init__(self) -> None:
        _require_distinct("inputs", [name.lower() for name in self.inputs])
        _require_distinct("outputs", [output.name for output in self.outputs])
        if not self.outputs:
            raise InvalidView("a view has at least one output")


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What ``maintain_view`` commits, and what it returns once that is durable."""

    views: tuple[Definition, ...]
    commands: tuple[Command, ...]
    outputs: tuple[ReadCapability, ...]


@dataclass(frozen=True, slots=True)
class MaintainView:
    """The command with its arguments."""

    reads: Sequence[ReadCapability]
    view: View
    writes: Sequence[WriteCapability | None] = ()
    kept_by: Epoch | None = None
    """Our epoch, if the outputs are not to be durable."""

    def decided(self, state: State, capabilities: Commands, installer: Installer) -> Maintenance:
        """Return what it comes to on this state, or raise why not."""
        if len(self.reads) != len(self.view.inputs):
            raise InvalidView(
                f"the view has {len(self.view.inputs)} inputs and {len(self.reads)} read "
                f"capabilities; give one for each, in the order of the names"
            )
        if len(self.writes) > len(self.view.outputs):
            raise InvalidView(
                f"the view has {len(self.view.outputs)} outputs and {len(self.writes)} write "
                f"capabilities; give at most one for each, None where compute is to introduce one"
            )
        if self.kept_by is not None and any(write is not None for write in self.writes):
            raise InvalidView(
                "an output goes into the collection of a write capability to stay there; for one "
                "that is not durable give None, and compute introduces a collection"
            )
        known = definition.stored(state)
        for output in self.view.outputs:
            if any(output.name == other.name for other in known):
                raise InvalidView(f"there is a view {output.name!r} already; drop it first")
        start = self._start(capabilities)
        inputs = {
            name: collection_of(state, read.id)
            for name, read in zip(self.view.inputs, self.reads, strict=True)
        }
        self._require_no_cycle(known)
        commands: list[Command] = [RenewReader(read.id, read.holder) for read in self.reads]
        views: list[Definition] = []
        tokens: list[ReadCapability] = []
        for number, output in enumerate(self.view.outputs):
            write = self.writes[number] if number < len(self.writes) else None
            into: Existing | Introduced = Introduced()
            if write is not None:
                into = Existing(_target(state, capabilities, write, start), given=True)
                commands.append(RetireWriter(write.id, write.holder))
            wanted = Wanted(output.name, output.query, inputs, into, start, kept_by=self.kept_by)
            made = installer.install(wanted)
            commands += made.commands
            read = ReadCapability(made.view.id, new_token(), Frontier.of(start))
            commands.append(
                OpenReader(read.id, read.holder, f"output {output.name}", read.frontier)
            )
            views.append(made.view)
            tokens.append(read)
        commands += map(drop_command, self.reads)
        return Maintenance(tuple(views), tuple(commands), tuple(tokens))

    def _start(self, capabilities: Commands) -> int:
        """Return the common frontier, if every read capability is valid as stated."""
        join: Times = Frontier.of(0)
        for name, read in zip(self.view.inputs, self.reads, strict=True):
            held, what = capabilities.reader(read), f"read capability of input {name!r}"
            if read.frontier.is_closed:
                raise InvalidCapability(what, "its frontier is empty")
            if not held.since <= read.frontier:
                raise InvalidCapability(what, f"it was moved from {read.frontier} to {held.since}")
            join = join.join(read.frontier)
        _require_distinct("read capabilities", [read.holder for read in self.reads])
        return join.only()

    def _require_no_cycle(self, known: Sequence[Definition]) -> None:
        written = {write.id for write in self.writes if write is not None}
        for gid in upstream((read.id for read in self.reads), known):
            if gid in written:
                raise InvalidView(
                    f"output u{gid} is also what the view reads, itself or through other views; "
                    f"a view cannot be defined by itself"
                )


def upstream(inputs: Iterable[GlobalId], known: Sequence[Definition]) -> Iterator[GlobalId]:
    """Yield these collections and all that they are computed from."""
    by_output = {view.id: view for view in known}
    seen: set[GlobalId] = set()
    waiting = list(inputs)
    while waiting:
        gid = waiting.pop()
        if gid in seen:
            continue
        seen.add(gid)
        yield gid
        if gid in by_output:
            waiting.extend(by_output[gid].inputs)


def _target(
    state: State, capabilities: Commands, write: WriteCapability, start: int
) -> CollectionState:
    """Return the collection of a write capability, if an output can begin in it at ``start``."""
    held = capabilities.writer(write)
    collection = collection_of(state, write.id)
    what = f"collection {collection.name!r}"
    if write.frontier != held.frontier:
        raise InvalidCapability(
            f"write capability on {what}", f"it was moved from {write.frontier} to {held.frontier}"
        )
    if collection.timeline is not None:
        raise InvalidView(
            f"{what} follows timeline {collection.timeline!r}, not a view; "
            f"give one that was created without a timeline"
        )
    begin = Frontier.of(start)
    if not held.frontier == state.upper(collection) == begin:
        raise InvalidView(
            f"the view starts at {start}, where its inputs are all readable, and {what} is written "
            f"from {held.frontier} on; create it with that start, or downgrade what is earlier"
        )
    if collection.batches or collection.unsealed:
        raise InvalidView(f"{what} has updates already; an output begins empty, so give a new one")
    return collection


def is_unreadable(state: State, view: Definition) -> bool:
    """Whether nobody can ever read the output again: its last read capability is gone."""
    collection = state.collections.get(view.id)
    return collection is not None and collection.since.is_closed


def _require_distinct(what: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise InvalidView(f"two {what} of a view are the same; give each its own")


# ---- who runs it -------------------------------------------------------------------------------


class Maintaining:
    """Commits ``maintain_view``."""

    def __init__(self, client: Client, session: Any, changing: Lock) -> None:
        """``changing`` is had by whoever changes what views there are, while it commits that."""
        self._core = client.core
        self._session = session
        self._changing = changing
        self._collections = Collections(client)

    def maintain_view(
        self,
        reads: Sequence[ReadCapability],
        view: View,
        writes: Sequence[WriteCapability | None] = (),
        *,
        durable: bool = True,
    ) -> tuple[ReadCapability, ...]:
        """See the module's docstring. Durable on return."""
        state = self._core.look()
        made = self._command(reads, view, writes, durable).decided(
            state, self._collections, Installer(state, self._session, reserving(self._core))
        )
        with self._changing:
            self._core.submit(Atomic(made.commands)).result()
        return made.outputs

    def _command(
        self,
        reads: Sequence[ReadCapability],
        view: View,
        writes: Sequence[WriteCapability | None],
        durable: bool,
    ) -> MaintainView:
        return MaintainView(reads, view, writes, None if durable else self._core.epoch)


class Validation(Maintaining):
    """Decides it. What it returns would be: the tokens grant nothing."""

    def maintain_view(
        self,
        reads: Sequence[ReadCapability],
        view: View,
        writes: Sequence[WriteCapability | None] = (),
        *,
        durable: bool = True,
    ) -> tuple[ReadCapability, ...]:
        """Refuse what the command would refuse."""
        core = self._core
        state = core.confirm()
        foreseen = _Foreseen(state)
        made = self._command(reads, view, writes, durable).decided(
            state, self._collections, Installer(state, self._session, foreseen)
        )
        ids = (ReserveId(),) * foreseen.count
        decide(state, Atomic((*ids, *made.commands)), max(state.clock_ms, core.clock.now_ms()))
        return made.outputs


class _Foreseen:
    """The ids that would be handed out next."""

    def __init__(self, state: State) -> None:
        self._next = int(state.next_id)
        self.count = 0

    def __call__(self, count: int) -> list[GlobalId]:
        first = self._next + self.count
        self.count += count
        return [GlobalId(first + n) for n in range(count)]
