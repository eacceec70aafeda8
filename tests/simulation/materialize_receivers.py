"""Rows that come, change and go, delivered to receivers that forget nothing; and who judges them.

The endpoints here keep whatever they are told, at once and for ever: no transactions, no fences, no
checkpoint. There are three ways to receive:

    by key      the last write wins: a row that comes is put under its key, one that goes is removed
    once        requests whose idempotency key is known are ignored; what is left is added up
    stored      a key/value store, row by row while Stores come (no delta updates)

The history goes on between two attempts, so that a retry that is not bound to what was begun covers
more than the attempt did. The judge looks after every commit: the receiver is the view at the
position that the log has. And a request that comes again under its key has the same body.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from headwater.collection.capability import ReadCapability, new_token
from headwater.materialize.definition import Binding, Definition, Endpoint
from headwater.materialize.documents import to_documents
from headwater.materialize.drivers.webhook import WebhookDriver
from headwater.materialize.key_range import KeyRange, key_hash
from headwater.materialize.protocol import messages as m
from headwater.materialize.tuples import pack, unpack
from headwater.persist.client import Client
from headwater.persist.commands import Atomic, OpenReader
from headwater.persist.decision import collection_of
from headwater.persist.evolution import updates_schema

KEYS = range(5)
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("v", pa.string(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
    ]
)

WIDER = SCHEMA.append(pa.field("w", pa.int64()))

View = dict[int, tuple[str, int]]

Request = tuple[str, bytes, str]
"""Path, body, idempotency key."""


class Wrong(AssertionError):
    """A receiver is not the view at the position that was committed."""


class History:
    """A collection, written time by time; few values, so that much of it is undone again."""

    def __init__(self, client: Client, name: str, seed: int) -> None:
        self._client, self._name = client, name
        self.schema = SCHEMA
        self.write, self.read = client.create_or_load(name, SCHEMA, key=("k",))
        self.views: list[View] = [{}]
        """The view before each time."""
        self._random = Random(seed)

    def widen(self) -> None:
        """Add a column."""
        self.schema = WIDER
        self.write, self.read = self._client.create_or_load(self._name, WIDER, key=("k",))

    def go_on(self) -> None:
        """Write one more time."""
        time, before = len(self.views) - 1, self.views[-1]
        now = dict(before)
        for k in self._random.sample(KEYS, self._random.randint(1, 3)):
            if k in now and self._random.random() < 0.6:
                del now[k]
            else:
                now[k] = (self._random.choice("ab"), self._random.randint(1, 2))
        gone = [(k, *row, -1) for k, row in before.items() if now.get(k) != row]
        came = [(k, *row, 1) for k, row in now.items() if before.get(k) != row]
        more = () if self.schema is SCHEMA else (7,)
        rows = [(k, v, n, *more, time, diff) for k, v, n, diff in gone + came]
        fields = updates_schema(self.schema)
        columns = list(zip(*rows, strict=True)) or [()] * len(fields)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)]
        updates = pa.Table.from_arrays(arrays, schema=fields)
        self.write.compare_and_append(updates, time, time + 1).result()
        self.views.append(now)


def defined(
    client: Client, name: str, bindings: Sequence[Binding]
) -> tuple[Definition, list[ReadCapability]]:
    """Return a materialization that nobody runs, and its holds."""
    reads = [
        ReadCapability(
            b.collection, new_token(), collection_of(client.core.state, b.collection).since
        )
        for b in bindings
    ]
    opens = [OpenReader(read.id, read.holder, f"materialization {name}") for read in reads]
    client.core.submit(Atomic(tuple(opens))).result()
    texts = tuple(read.to_text() for read in reads)
    endpoint = Endpoint("webhook", {"url": "http://receiver"})
    return Definition(name, "i", endpoint, tuple(bindings), texts), reads


class Receiver:
    """What has come, as each way of receiving has it."""

    judges_by_key = judges_once = True

    def __init__(self) -> None:
        self.by_key: View = {}
        self.bodies: dict[str, bytes] = {}
        """By idempotency key."""
        self.rows: Counter[tuple[int, str, int]] = Counter()
        self.sums: Counter[int] = Counter()
        self.repeated = 0

    def post(self, path: str, body: bytes, key: str) -> None:
        """Take a request."""
        documents = msgspec.json.decode(body)
        if path == "rows":
            for document in documents:
                self._put(document)
        known = self.bodies.setdefault(key, body)
        if known is not body:
            self.repeated += 1
            if _values(known) != _values(body):
                raise Wrong(f"{key} was {known!r}, and is {body!r} now")
            return
        for document in documents:
            if path == "sums":
                self.sums[document["k"]] += document["n"]
            else:
                row = (document["k"], document["v"], document["n"])
                self.rows[row] += -1 if document["_meta/op"] == "d" else 1

    def _put(self, document: Any) -> None:
        if document["_meta/op"] == "d":
            self.by_key.pop(document["k"], None)
        else:
            self.by_key[document["k"]] = (document["v"], document["n"])

    def judge(self, view: View, key_range: KeyRange) -> None:
        """Compare what there is of a key range with the view."""
        for k in KEYS:
            if not key_range.owns(key_hash(pack((k,)))):
                continue
            row = view.get(k)
            if self.judges_by_key and self.by_key.get(k) != row:
                raise Wrong(f"by key, {k} is {self.by_key.get(k)}, not {row}")
            if not self.judges_once:
                continue
            there = {found: count for found, count in self.rows.items() if found[0] == k and count}
            if there != ({(k, *row): 1} if row else {}):
                raise Wrong(f"once, {k} is {there}, not {row}")
            if self.sums[k] != (row[1] if row else 0):
                raise Wrong(f"{k} adds up to {self.sums[k]}, and is {row}")


def _values(body: bytes) -> list[dict[str, Any]]:
    """Return the documents of a request without NULLs: a column may have been added since."""
    documents = msgspec.json.decode(body)
    return [{name: value for name, value in d.items() if value is not None} for d in documents]


class Told(Protocol):
    """Where drivers report what they are about to do, and have done."""

    receiver: Receiver

    @property
    def frozen(self) -> list[Request] | None:
        """Where requests go of a process that was given up, and goes on later."""
        ...

    def event(self) -> None:
        """Take notice; may raise."""
        ...


class Hook(WebhookDriver):
    """The driver of webhooks, with a receiver in the place of HTTP."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self._told = told

    def _post(self, path: str, body: bytes, key: str) -> None:
        self._told.event()
        if self._told.frozen is not None:
            self._told.frozen.append((path, body, key))
            return
        self._told.receiver.post(path, body, key)
        self._told.event()

    @staticmethod
    def bindings(history: History) -> tuple[Binding, ...]:
        gid = history.read.id
        reduced = Binding("c", gid, "sums", ("k",), delta_updates=True, reduce=(("n", "sum"),))
        return Binding("c", gid, "rows", ("k",), delta_updates=True), reduced


class KeyedAnew(Hook):
    """Has other keys for each attempt."""

    attempts = 0

    def _send_all(self, checkpoint: Any) -> None:
        KeyedAnew.attempts += 1
        self._range = f"{self._range}-{KeyedAnew.attempts}"
        super()._send_all(checkpoint)


class KeyValue(Hook):
    """A store of rows by key, each written when it comes."""

    def __init__(self, told: Told) -> None:
        super().__init__(told)
        self._asked: list[Any] = []

    def respond(self, request: m.Request) -> Iterator[m.Response]:
        match request:
            case m.Validate():
                (validated,) = super().respond(request)
                assert isinstance(validated, m.Validated)
                bindings = [replace(b, delta_updates=False) for b in validated.bindings]
                yield m.Validated(tuple(bindings))
            case m.StoreMany():
                told = zip(request.delete.to_pylist(), request.exists.to_pylist(), strict=True)
                for row, (gone, exists) in zip(to_documents(request.rows), told, strict=True):
                    self._told.event()
                    self._check(row["k"], exists=exists)
                    row["_meta/op"] = "d" if gone else "c"
                    self._told.receiver._put(row)
            case m.LoadMany():
                self._asked += [unpack(key)[0] for key in request.keys_packed.to_pylist()]
            case m.Flush():
                asked, self._asked = self._asked, []
                rows = [(k, *found) for k in asked if (found := self._told.receiver.by_key.get(k))]
                if rows:
                    arrays = [pa.array(column) for column in zip(*rows, strict=True)]
                    yield m.LoadedMany(0, pa.Table.from_arrays(arrays, schema=SCHEMA))
                yield m.Flushed()
            case _:
                yield from super().respond(request)

    def _check(self, k: int, *, exists: bool) -> None:
        """A row comes, or goes, and is said to be there, or not."""

    @staticmethod
    def bindings(history: History) -> tuple[Binding, ...]:
        return (Binding("c", history.read.id, "rows", ("k",)),)


class Reduced(KeyValue):
    """The same with ``REDUCE``: a row that a failed attempt left there is not counted."""

    @staticmethod
    def bindings(history: History) -> tuple[Binding, ...]:
        reduce = (("v", "lastWriteWins"), ("n", "lastWriteWins"))
        return (Binding("c", history.read.id, "rows", ("k",), reduce=reduce),)


class Strict(KeyValue):
    """A store that creates, updates and deletes only as it is told that a row is there, or not."""

    def _check(self, k: int, *, exists: bool) -> None:
        if (k in self._told.receiver.by_key) != exists:
            raise Wrong(f"{k} is{' not' if exists else ''} there")
