"""What the inputs of a materialization have to say: updates, and up to which time they are good.

The bindings of a materialization are delivered at one common time. From a checkpoint on, a
:class:`Feed` follows all inputs and knows the *target*: the greatest ``T`` not past any input's
upper at which no input has an error at ``T - 1``. Everything before ``T`` can be delivered; what
comes after an error waits until the error is retracted.

    input a   ───────────── errors ▒▒▒▒▒▒▒▒───────│ upper
    input b   ────────────────────────────────────────│ upper
    target               │ (while the errors last) │ (once they are retracted)

What a collection is at first is not handed out as updates. Its snapshot is (:attr:`Feed.first`),
and nothing else until that was delivered (``first``). Neither is read here: both may be large. Only
the errors are, because the target depends on them.

A collection may have taken the place of another while its rows were delivered (``replaced``). Then
the position says whether the endpoint has the old one; what leads over to the new one is handed out
like any other updates, by the first take that is past the replacement.

What was begun at an endpoint and must be repeated (``intent``) is handed out as it was then, and
before anything else: up to its own target, from the collection that it was of.

Invariant:      each update is handed out exactly once, by the first :meth:`Feed.take` whose target
                is after its time; at ``T - 1`` of every target handed out all inputs are free of
                errors.
Relied on by:   the runtime. A feed lives as long as a session; the next begins at its checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import HeadwaterError
from headwater.base.ids import GlobalId
from headwater.collection.capability import ReadCapability
from headwater.collection.difference import Difference
from headwater.materialize.checkpoint import Position
from headwater.materialize.definition import Was
from headwater.materialize.intent import Intent
from headwater.persist.client import Client, ReadHandle
from headwater.persist.decision import collection_of
from headwater.persist.errors import AsOfBeforeSince, CollectionHasErrors
from headwater.persist.evolution import DIFF, ERROR_SCHEMA, TIME, updates_schema
from headwater.persist.interval import Interval
from headwater.persist.read import Hold, Snapshot, check_readable
from headwater.persist.state import State

_FOR_EVER: Final = 1 << 62


class CheckpointTooOld(HeadwaterError):
    """A checkpoint from which the inputs cannot be read any more."""

    def __init__(self, name: str, position: Position, reason: object) -> None:
        super().__init__(
            f"the endpoint stands at time {position.time}, but {name!r} cannot be read from there "
            f"any more ({reason}); was the endpoint restored from a backup, or has it lost what it "
            "had confirmed? ALTER MATERIALIZATION … BACKFILL delivers everything anew"
        )


@dataclass(frozen=True, slots=True)
class ErrorSpan:
    """Times ``[begin, end)`` at which an input has errors, and those at ``begin``."""

    begin: int
    end: int
    messages: tuple[str, ...]


def error_spans(errors: pa.Table) -> Iterator[ErrorSpan]:
    """Yield when a history of errors leaves some; the last may go on for ever."""
    at_time, at_diff = errors.column_names.index(TIME), errors.column_names.index(DIFF)
    rows = zip(*(errors[name].to_pylist() for name in errors.column_names), strict=True)
    updates = sorted(rows, key=lambda update: update[at_time])
    standing: Counter[tuple[object, ...]] = Counter()
    for number, update in enumerate(updates):
        standing[update[:at_time]] += update[at_diff]
        time = update[at_time]
        following = updates[number + 1][at_time] if number + 1 < len(updates) else _FOR_EVER
        left = [error for error, count in standing.items() if count]
        if left and following != time:
            yield ErrorSpan(time, following, tuple(str(error[1]) for error in left))


class Input:
    """One collection, followed from a time on; its rows are read when they are delivered."""

    def __init__(
        self,
        client: Client,
        name: str,
        read: ReadCapability,
        position: Position | None,
        start: int | None,
        was: Sequence[Was] = (),
    ) -> None:
        """Follow a collection from a position on, or from ``start``, as it is then.

        ``was``: those that it has taken the place of, and of which the position may be.
        """
        self.name = name
        self.first: Snapshot | None = None
        """The collection at ``start``, as long as it was not delivered."""
        self._core = client.core
        self._id = read.id
        self._was = tuple(was)
        self._errors = updates_schema(ERROR_SCHEMA).empty_table()
        self._whole = False
        """Whether what was there before the first update is still to be handed out with it."""
        if start is None:
            assert position is not None
            start_after = position.time
        else:
            start_after = start + 1
        self._taken = start_after
        """Everything before it was handed out, or is in ``first``."""
        self._followed = self._taken
        self._waiting: Interval | Difference | None = None
        """What was followed and not handed out, if anything was."""
        read_of, _ = self._at(self._taken)
        collection = collection_of(client.core.state, read_of)
        try:
            check_readable(name, collection, self._taken - 1)
        except AsOfBeforeSince as error:
            if position is None:
                raise
            raise CheckpointTooOld(name, position, error) from error
        self._hold = Hold(client.core, read_of, self._taken - 1)
        if start is not None:
            self.first = ReadHandle(client.core, read_of).snapshot(start)
            self.first.threads = True
            self._errors = _at(self.first.errors(), start)

    def _at(self, checkpoint: int) -> tuple[GlobalId, int]:
        """Return the collection that a checkpoint is of, and after which checkpoint it came."""
        begin = 0
        for was in self._was:
            if checkpoint <= was.until:
                return was.collection, begin
            begin = was.until
        return self._id, begin

    def read_first(self) -> None:
        """Take what the collection was at first for updates like any other."""
        assert self.first is not None
        self.first, self._whole = None, True
        self._taken -= 1

    def follow(self, target: int) -> None:
        """Take notice of what there is up to a time that is sealed; of errors, read them."""
        if target <= self._followed and self._waiting is not None:
            return
        (before, _), (now, begin) = self._at(self._followed), self._at(target)
        if before != now:
            # Whatever is wrong with the old one is of no interest any more.
            self._errors = Interval(self._core, now, begin, target, whole=True).errors()
            self._followed = target
        elif target > self._followed:
            unseen = Interval(self._core, now, self._followed, target)
            self._errors = pa.concat_tables([self._errors, unseen.errors()])
            self._followed = target
        self._waiting = self._between(self._taken, self._followed)

    def _between(self, lower: int, upper: int) -> Interval | Difference:
        (before, _), (now, _) = self._at(lower), self._at(upper)
        if before != now:
            return Difference(self._core, before, lower - 1, now, upper)
        return Interval(self._core, now, lower, upper, whole=self._whole)

    @property
    def has_more(self) -> bool:
        """Whether something was not looked at yet, or may still come."""
        return self._followed < _FOR_EVER

    @property
    def last_time(self) -> int:
        """No update that waits is later; -1 if none does."""
        last = None if self._waiting is None else self._waiting.last_time
        return -1 if last is None else last

    @property
    def first_time(self) -> int:
        """No update that waits is earlier; none is later than for ever."""
        first = None if self._waiting is None else self._waiting.first_time
        return _FOR_EVER if first is None else first

    def find_first_time(self) -> int:
        """Return when the earliest update is that waits; it may have to be read for that."""
        first = None if self._waiting is None else self._waiting.find_first_time()
        return _FOR_EVER if first is None else first

    def spans(self) -> tuple[ErrorSpan, ...]:
        """Return when there are errors, among what was followed and not handed out."""
        return tuple(error_spans(self._errors)) if self._errors.num_rows else ()

    def take(self, target: int) -> Interval | Difference:
        """Hand out the updates before ``target``, unread."""
        taken = self._between(self._taken, target)
        if isinstance(taken, Difference):
            self._hold.release()
            self._hold = Hold(self._core, self._at(target)[0], target - 1)
        self._whole, self._taken = False, target
        self._waiting = self._between(target, self._followed) if target < self._followed else None
        # Nothing is wrong at target - 1: the errors before it have cancelled each other out.
        self._errors = self._errors.filter(pc.greater_equal(self._errors[TIME], target))
        self._hold.move(target - 1)
        return taken

    def close(self) -> None:
        """Release what is held for reading."""
        self._hold.release()


def _at(rows: pa.Table, time: int) -> pa.Table:
    """Return rows with their diffs as updates at a time."""
    times = pa.repeat(pa.scalar(time, pa.int64()), rows.num_rows)
    return rows.add_column(
        rows.schema.get_field_index(DIFF), pa.field(TIME, pa.int64(), nullable=False), times
    )


def last_good(upper: int, spans: Sequence[ErrorSpan]) -> int:
    """Return the greatest ``T <= upper`` such that ``T - 1`` lies in no span.

    >>> last_good(10, [ErrorSpan(7, 20, ()), ErrorSpan(4, 7, ())])
    4
    """
    target = upper
    while covering := [span for span in spans if span.begin < target <= span.end]:
        target = min(span.begin for span in covering)
    return target


class Feed:
    """All inputs of a materialization, from a position on."""

    def __init__(
        self,
        client: Client,
        inputs: Sequence[tuple[str, ReadCapability]],
        position: Position | None,
        replaced: Sequence[Sequence[Was]] = (),
        owed: Intent | None = None,
    ) -> None:
        """``owed``: what was begun, and is to be handed out first."""
        self._client = client
        self._owed = owed
        self._named = tuple(inputs)
        self._position = position
        self._replaced = tuple(map(tuple, replaced)) or ((),) * len(self._named)
        """What the endpoint may have instead of an input."""
        self._inputs: list[Input] = []
        """Empty until the first time at which all can be read is sealed everywhere."""
        self.first: int | None = None
        """The time of the first snapshot, as long as it was not delivered."""
        state = client.core.state
        holders = [collection_of(state, read.id).readers[read.holder] for _, read in inputs]
        # Every input can be read at its hold; the first time at which all can is the latest.
        self._start = max(holder.since.only() for holder in holders)
        if owed is not None and position is None:
            # Of what was replaced since, nothing is left but that it can be read there.
            self._start = min(self._start, owed.position.time - 1)
        self.reached = self._start if position is None else position.time
        """Everything before it was handed out."""
        if position is not None and position.snapshot:
            self.reached -= 1  # What is there at that time was only begun to be.

    def wait(
        self,
        timeout: float,
        stopping: Callable[[], bool] = lambda: False,
        no_later: int | None = None,
    ) -> int | None:
        """Return the next target; ``None`` if there is nothing new in time, or we are stopping.

        With ``no_later``, a target that others have had already, it is that one and no other.

        Raises :class:`CollectionHasErrors` if all that is new has errors.
        """
        upper = self._client.core.wait(
            lambda state: -1 if stopping() else self._newer_upper(state, no_later), timeout
        )
        if upper is None or upper < 0:
            return None
        if not self._inputs:
            self._begin(upper)
        if self.first is not None:
            return self.first + 1
        for one in self._inputs:
            one.follow(upper)
        if upper == _FOR_EVER:
            upper = max(self.reached, *(one.last_time + 1 for one in self._inputs))
        spans = {one.name: one.spans() for one in self._inputs}
        target = last_good(upper, [span for found in spans.values() for span in found])
        least = self.reached if no_later is not None else self._least
        if target > least:
            return target
        for name, found in spans.items():
            for span in found:
                if span.begin <= least < span.end:
                    raise CollectionHasErrors(name, least, span.messages)
        return None

    @property
    def _least(self) -> int:
        """The next target is after it: what was replaced is not delivered any more."""
        return max((self.reached, *(was.until for former in self._replaced for was in former)))

    def _begin(self, upper: int) -> None:
        """Open the inputs: at the position, or with a snapshot of them all.

        The newest snapshot is the cheapest. If it has errors, an earlier time may have had none:
        then the oldest one is taken, and the history since. A snapshot that was begun goes on, at
        its own time.
        """
        position = self._position
        if position is not None:
            self._open(position.time - 1 if position.snapshot else None)
            self.first = position.time - 1 if position.snapshot else None
            return
        if self._owed is not None and self._owed.first:
            self.reached = self.first = self._owed.position.time - 1
            self._open(self.first)
            return
        if self._owed is None and self._start <= upper - 1 < _FOR_EVER - 1:
            self._open(upper - 1)
            if not any(one.spans() for one in self._inputs):
                self.reached = self.first = upper - 1
                return
            self.close()
        self._open(self._start)
        for one in self._inputs:
            one.read_first()

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """The inputs at :attr:`first`."""
        return tuple(one.first for one in self._inputs if one.first is not None)

    def first_delivered(self) -> None:
        """Go on with what has come since."""
        assert self.first is not None
        self.reached, self.first = self.first + 1, None
        for one in self._inputs:
            one.first = None

    def _open(self, start: int | None) -> None:
        self._inputs = []
        for (name, read), former in zip(self._named, self._replaced, strict=True):
            # Where nothing was delivered yet there is nothing to lead over from.
            was = former if self._position is not None or self._owed is not None else ()
            self._inputs.append(Input(self._client, name, read, self._position, start, was))

    def _newer_upper(self, state: State, no_later: int | None) -> int | None:
        upper = min(_upper(state, read.id) for _, read in self._named)
        if no_later is not None:
            return no_later if upper >= no_later > self.reached else None
        if upper == _FOR_EVER and self._inputs:
            more = (one.has_more or one.last_time >= self.reached for one in self._inputs)
            return upper if any(more) else None
        return upper if upper > self._least else None

    def has_before(self, target: int) -> bool:
        """Whether any input has something to hand out before a target."""
        return self.first is not None or any(one.first_time < target for one in self._inputs)

    def within(self, target: int, span: int) -> int:
        """Return a target that is not so far after the first change, if one without errors is."""
        if self.first is not None or target - self.reached <= span:
            return target
        firsts = (one.find_first_time() for one in self._inputs)
        begin = max(self.reached, min(firsts, default=target))
        if target - begin <= span:
            return target
        spans = [span for one in self._inputs for span in one.spans()]
        nearer = last_good(begin + span, spans)
        return nearer if nearer > self._least else target

    def take(self, target: int) -> list[Interval | Difference]:
        """Hand out the updates of every input before a target, unread."""
        taken = [one.take(target) for one in self._inputs]
        self.reached = target
        return taken

    def close(self) -> None:
        """Stop following."""
        for one in self._inputs:
            one.close()


def _upper(state: State, gid: GlobalId) -> int:
    """Return a collection's upper; a closed one is complete for ever."""
    upper = state.upper(collection_of(state, gid))
    return _FOR_EVER if upper.is_closed else upper.only()
