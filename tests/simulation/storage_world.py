"""An upstream that forgets what it was told to forget, and the oracle of what must come of it.

The source has raw messages in several partitions. A read of what was committed fails, so whoever
commits too early cannot recover; and the oracle knows nothing of ingestions: it takes the durable
remap, the messages, and the definitions in the docstrings.

    reclocked(t) = all messages that are not beyond remap(t)

- ``plain``: every decodable message is a row; the rest are errors
- ``upsert``: for each key the last value or delete in the order (time, offset, partition)
- dead letters: every message that is not decodable, per output
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from headwater.base.clock import ManualClock
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import Client, ReadHandle, open_location
from headwater.persist.commands import OpenReader
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Core, Settings, Step
from headwater.persist.location import Blob, Consensus
from headwater.persist.spark_parts import Place, Writing
from headwater.storage import dead_letters, remap
from headwater.storage.envelope import Plain, Upsert
from headwater.storage.format import Json
from headwater.storage.ingestion import Ingestion
from headwater.storage.offsets import NOTHING, Offsets
from headwater.storage.outputs import Definition, Output
from headwater.storage.reclock import time_of
from headwater.storage.remap import Remap
from headwater.storage.source import MESSAGE, PLACE, Piece, Records, Reliance
from headwater.storage.stored_remap import read_remap
from headwater.storage.tasks import Tasks

Message = tuple[bytes | None, bytes | None]

VALUE = pa.schema([pa.field("v", pa.int64(), nullable=False)])
KEY = pa.schema([pa.field("k", pa.int64(), nullable=False)])
BOTH = ("plain", "upsert")


class Forgotten(AssertionError):
    """Upstream was asked for what it was told to forget."""


@dataclass
class Upstream:
    """Partitions of messages; each output of the source has all of them."""

    partitions: dict[str, list[Message]] = field(default_factory=dict)
    forgotten: Offsets = NOTHING
    reads: list[tuple[Offsets, Offsets]] = field(default_factory=list)

    def add(self, partition: str, key: int | None, value: int | bytes | None) -> None:
        raw_key = None if key is None else b'{"k": %d}' % key
        raw = b'{"v": %d}' % value if isinstance(value, int) else value
        self.partitions.setdefault(partition, []).append((raw_key, raw))

    def grow(self, random: Random, count: int) -> None:
        for _ in range(count):
            key = None if random.random() < 0.05 else random.randrange(4)
            chance = random.random()
            value = None if chance < 0.15 else b"no json" if chance < 0.3 else random.randrange(50)
            self.add(random.choice("ab"), key, value)

    @property
    def offsets(self) -> Offsets:
        return Offsets({p: len(found) for p, found in self.partitions.items()})


@dataclass
class ScriptedSource:
    """The upstream as an ingestion sees it."""

    upstream: Upstream
    name: str = "scripted"
    reliance: Reliance = Reliance.BOUNDED
    batch: int = 3

    def probe(self) -> Offsets:
        return self.upstream.offsets

    def read(self, lower: Offsets, upper: Offsets) -> Iterator[Records]:
        if not self.upstream.forgotten <= lower:
            raise Forgotten(f"{lower} was asked for; {self.upstream.forgotten} is forgotten")
        self.upstream.reads.append((lower, upper))
        for partition, found in self.upstream.partitions.items():
            first, last = lower[partition], upper[partition]
            for start in range(first, last, self.batch):
                places = range(start, min(last, start + self.batch))
                keys, values = zip(*(found[n] for n in places), strict=True)
                table = pa.Table.from_arrays(
                    [
                        pa.array([partition] * len(places), pa.string()),
                        pa.array(places, pa.int64()),
                        pa.array(keys, pa.binary()),
                        pa.array(values, pa.binary()),
                    ],
                    schema=pa.schema([*PLACE, *MESSAGE]),
                )
                for output in BOTH:
                    yield Records(output, table)

    def pieces(self, lower: Offsets, upper: Offsets) -> list[Piece]:
        """Return a piece for each partition that has something."""
        found = []
        for partition, end in upper.items():
            if lower[partition] < end:
                before, mine = dict(lower.items()), {partition: lower[partition]}
                rest = {p: n for p, n in before.items() if p != partition}
                first, last = Offsets({**rest, **mine}), Offsets({**rest, partition: end})
                found.append(Piece(first, last, end - lower[partition]))
        return found

    def commit(self, offsets: Offsets) -> None:
        # Whoever asks for less later lost nothing: a permission once given is not taken back.
        self.upstream.forgotten = self.upstream.forgotten.join(offsets)

    def close(self) -> None:
        pass


DEFINITION = Definition(
    "s",
    (
        Output("plain", "plain", Plain(Json(VALUE))),
        Output("upsert", "upsert", Upsert(Json(VALUE), ("k",), Json(KEY))),
    ),
)


@dataclass(frozen=True, slots=True)
class InMemory(Place):
    """Where tasks find things that are in this process's memory."""

    core: Core

    def blob(self, *, read_only: bool) -> Blob:
        del read_only
        return self.core.blob


def in_memory(core: Core) -> InMemory:
    return InMemory("memory", core.layouts, core)


@dataclass
class TasksHere:
    """Tasks that run one after the other, here; ``failing``: which of all runs, if one, fails."""

    core: Core
    step: Step
    kinds: list[str] = field(default_factory=list)
    """What was run; shared by all ranges."""
    failing: int | None = None
    at_once: int = 3

    def run(self, work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
        self.kinds.append(type(work[0]).__name__)
        fails = len(self.kinds) - 1 == self.failing
        done = [each(str(number)) for number, each in enumerate(work[: len(work) - fails])]
        if fails:
            raise RuntimeError("the last task was lost; the others have written")
        return done

    def writing(self) -> Writing:
        return Writing(in_memory(self.core), self.step.name())


@dataclass
class World:
    """Memory ports that outlive the processes, an upstream, and a clock."""

    blob: MemoryBlob = field(default_factory=MemoryBlob)
    log: MemoryConsensus = field(default_factory=MemoryConsensus)
    upstream: Upstream = field(default_factory=Upstream)
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_000))
    tasks: Callable[[Core, Step], Tasks] | None = None

    def open(self, blob: Blob | None = None, log: Consensus | None = None) -> Client:
        return open_location(
            blob=blob or self.blob,
            consensus=log or self.log,
            take_over=True,
            clock=self.clock,
            settings=Settings(maintenance=False),
            layouts=LAYOUTS,
        )

    def start(self, client: Client) -> Ingestion:
        """Start an ingestion; everything it ever binds and appends stays readable."""
        for name, schema, key, layout in (
            (DEFINITION.remap, remap.SCHEMA, (), "parquet"),
            (DEFINITION.dead_letters, dead_letters.SCHEMA, (), "parquet"),
            *(
                (o.collection, o.envelope.schema, o.envelope.key, o.envelope.layout)
                for o in DEFINITION.outputs
            ),
        ):
            write, _ = client.create_or_load(name, schema, key=key, layout=layout)
            client.core.submit(OpenReader(write.id, f"oracle/{name}", "oracle")).result()
        source = ScriptedSource(self.upstream)
        return Ingestion(client, DEFINITION, source, tasks=self.tasks)


# ---- the oracle ------------------------------------------------------------------------------


def _decoded(raw: bytes | None, name: str) -> int | None:
    prefix = b'{"%s": ' % name.encode()
    if raw is None or not raw.startswith(prefix):
        return None
    return int(raw[len(prefix) : -1])


def expected(upstream: Upstream, bound: Remap, time: int) -> dict[str, Counter[Any]]:
    """Return what each collection must hold at a time, by the definitions alone."""
    there = []
    for partition, found in upstream.partitions.items():
        for offset, (key, value) in enumerate(found):
            stamp = time_of(bound, partition, offset)
            if stamp is not None and stamp <= time:
                there.append((stamp, offset, partition, key, value))
    plain: Counter[Any] = Counter()
    errors: Counter[Any] = Counter()
    letters: Counter[Any] = Counter()
    keyed: dict[int, int | str | None] = {}
    lost: Counter[str] = Counter()
    for _, offset, partition, key, value in sorted(there, key=lambda m: m[:3]):
        place, number = (partition, offset), _decoded(value, "v")
        if number is None:
            letters["plain", *place] += 1
            errors[place] += 1
        else:
            plain[number] += 1
        name = _decoded(key, "k")
        if name is None:
            letters["upsert", *place] += 1
            lost[str(place)] += 1
        elif value is None:
            keyed[name] = None
        elif number is None:
            letters["upsert", *place] += 1
            keyed[name] = str(place)
        else:
            keyed[name] = number
    lost.update(v for v in keyed.values() if isinstance(v, str))
    return {
        "plain": plain,
        "plain errors": Counter({str(place): n for place, n in errors.items()}),
        "upsert": Counter({(k, v): 1 for k, v in keyed.items() if isinstance(v, int)}),
        "upsert errors": lost,
        "letters": letters,
    }


def _read(read: ReadHandle, time: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    ok, errors = read.snapshot(time).sides()
    return ok.to_pylist(), errors.to_pylist()


def _places(errors: list[dict[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for error in errors:
        words = error["message"].split(":")[0].split()  # "record 3 of partition 'a'"
        found[str((words[-1].strip("'"), int(words[1])))] += error["__diff"]
    return found


def actual(client: Client, time: int) -> dict[str, Counter[Any]]:
    """Return what each collection holds at a time."""
    plain, plain_errors = _read(client.reader("plain"), time)
    upsert, upsert_errors = _read(client.reader("upsert"), time)
    letters, _ = _read(client.reader(DEFINITION.dead_letters), time)
    found: dict[str, Counter[Any]] = {
        "plain": Counter(),
        "plain errors": _places(plain_errors),
        "upsert": Counter(),
        "upsert errors": _places(upsert_errors),
        "letters": Counter(),
    }
    for row in plain:
        found["plain"][row["v"]] += row["__diff"]
    for row in upsert:
        found["upsert"][row["k"], row["v"]] += row["__diff"]
    for row in letters:
        found["letters"][row["output"], row["partition"], row["offset"]] += row["__diff"]
    return found


def complaints(client: Client, upstream: Upstream) -> Iterator[str]:
    """Name every time at which a collection is not the function of remap that it must be."""
    read = client.reader(DEFINITION.remap)
    bound = read_remap(read, read.since.only())  # All of it is held, so it begins there.
    uppers = {name: client.reader(name).upper.only() for name in ("plain", "upsert")}
    uppers["letters"] = client.reader(DEFINITION.dead_letters).upper.only()
    if len(set(uppers.values())) != 1:
        yield f"the outputs are torn: {uppers}"
        return
    upper = uppers["plain"]
    if upper > bound.upper:
        yield f"data is there before {upper}, and remap is bound before {bound.upper}"
    for binding in bound.bindings:
        for time in (binding.time, binding.time + 1):
            if time < min(upper, bound.upper):
                must, is_ = expected(upstream, bound, time), actual(client, time)
                if must != is_:
                    yield f"at {time}: {is_}, not {must}"
