"""Parquet files as a driver of the protocol: the recovery log is authoritative, files are applied.

    <target>/v0000000000/<counter>-<key range>.parquet      what everybody reads; in commit order
    staged/<materialization>/<key range>/<token>.parquet    what a transaction is about to add

A transaction writes its rows into staged files, one per binding, and says in StartedCommit where
they shall go. That commits with the checkpoint. Acknowledge then puts each where it belongs: it is
created there exclusively, so that it is there once however often that is tried, and the staged one
is deleted. A driver that opens finishes first what its state names; other staged files of its key
range are of transactions that never committed, and go.

Delivery is exactly once: a file is there if and only if its transaction committed, at the latest
when the next session has acknowledged. Files are only added, so bindings are delta updates.

The place is a directory or a bucket (``persist/blob``). Columns keep their Arrow types.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.base.decoding import from_json
from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.materialize.drivers.columns import columns_of, constraints
from headwater.materialize.drivers.responder import NotServed, specified
from headwater.materialize.key_range import KeyHash, KeyRange
from headwater.materialize.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Applied,
    Apply,
    Flush,
    Flushed,
    Load,
    LoadMany,
    Open,
    Opened,
    Request,
    Response,
    Spec,
    StartCommit,
    StartedCommit,
    Store,
    StoreMany,
    Validate,
    Validated,
    ValidatedBinding,
)
from headwater.materialize.protocol.specs import (
    CollectionSpec,
    ConnectorState,
    MaterializationSpec,
)
from headwater.persist.blob import check_key, open_blob
from headwater.persist.location import Blob

STAGED: Final = "staged"
_TOKEN_BYTES: Final = 8
_COMPRESSION: Final = "zstd"


class StagedFileLost(HeadwaterError):
    """A file of a committed transaction that is neither staged nor where it belongs."""

    def __init__(self, staged: str, final: str) -> None:
        super().__init__(
            f"the committed file {final} is not there, nor is {staged}, of which it was to be "
            "made; somebody else removed it"
        )


class ShardState(msgspec.Struct, frozen=True):
    """What is remembered of a key range: the next file of each binding, and what is staged."""

    next: dict[str, int] = {}
    staged: dict[str, str] = {}
    """Staged files, and where they belong."""


def _inherited(states: Mapping[str, ShardState], opened: KeyRange) -> ShardState:
    """Return the state of a range: its files come after all that hold keys of it."""
    overlapping = [state for text, state in states.items() if KeyRange.parse(text).overlaps(opened)]
    following: dict[str, int] = {}
    for binding, counter in (item for state in overlapping for item in state.next.items()):
        following[binding] = max(counter, following.get(binding, 0))
    return ShardState(following, states.get(str(opened), ShardState()).staged)


class ParquetDriver:
    """A driver for files in one place."""

    documentation_url: ClassVar[str] = "https://parquet.apache.org/docs"
    config_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["url"],
        "properties": {
            "url": {"type": "string", "title": "A directory, or s3://bucket/prefix"},
        },
    }
    resource_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "title": "Directory of files", "x-collection-name": True},
        },
    }

    def __init__(self) -> None:
        self._blob: Blob | None = None
        self._materialization = MaterializationSpec()
        self._range = ""
        self._state = ShardState()
        self._writers: dict[int, tuple[pa.BufferOutputStream, pq.ParquetWriter]] = {}

    def respond(self, request: Request) -> Iterator[Response]:
        """Act upon a request; yield the responses to it."""
        match request:
            case Spec():
                yield specified(self)
            case Validate():
                yield self._validated(request)
            case Apply():
                # A directory is there with its first file.
                yield Applied()
            case Open():
                self._open(request)
                yield Opened()
            case Acknowledge():
                yield Acknowledged(self._applied())
            case Flush():
                yield Flushed()
            case StoreMany():
                self._write(request)
            case StartCommit():
                yield StartedCommit(self._staged())
            case Load() | LoadMany() | Store():
                raise NotServed(request)

    def close(self) -> None:
        """Release the place; what is staged and not committed goes when it is opened again."""
        self._writers.clear()
        if self._blob is not None:
            self._blob.close()
            self._blob = None

    @property
    def _place(self) -> Blob:
        assert self._blob is not None
        return self._blob

    def _connect(self, config_json: bytes) -> None:
        if self._blob is None:
            self._blob = open_blob(msgspec.json.decode(config_json)["url"])

    def _validated(self, request: Validate) -> Validated:
        self._connect(request.config_json)
        bindings = []
        for binding in request.bindings:
            path = msgspec.json.decode(binding.resource_config_json)["path"]
            check_key(path)
            if path.split("/")[0] == STAGED:
                raise InvalidUsage(f"files cannot be delivered into {path!r}: it is for our own")
            collection = binding.collection or CollectionSpec()
            bindings.append(
                ValidatedBinding(
                    constraints=tuple(constraints(collection, {}, lambda _, __: True, delta=True)),
                    resource_path=(path,),
                    delta_updates=True,
                    holds_data=next(self._place.list(f"{path}/"), None) is not None,
                )
            )
        return Validated(tuple(bindings))

    def _open(self, request: Open) -> None:
        assert request.materialization is not None
        assert request.range is not None
        self._materialization = request.materialization
        self._connect(request.materialization.config_json)
        opened = KeyRange(KeyHash(request.range.key_begin), KeyHash(request.range.key_end))
        self._range = str(opened)
        states = from_json(request.state_json or b"{}", dict[str, ShardState])
        self._state = _inherited(states, opened)
        for found in list(self._place.list(self._directory)):
            if found.key not in self._state.staged:
                self._place.delete(found.key)

    @property
    def _directory(self) -> str:
        """Where our shard stages; another materialization in this place has its own."""
        name = blake2b(self._materialization.name.encode(), digest_size=_TOKEN_BYTES).hexdigest()
        return f"{STAGED}/{name}/{self._range}/"

    def _write(self, request: StoreMany) -> None:
        binding = self._materialization.bindings[request.binding]
        rows = request.rows.select([column.name for column in columns_of(binding)])
        if request.binding not in self._writers:
            stream = pa.BufferOutputStream()
            writer = pq.ParquetWriter(stream, rows.schema, compression=_COMPRESSION)
            self._writers[request.binding] = (stream, writer)
        self._writers[request.binding][1].write_table(rows)

    def _staged(self) -> ConnectorState | None:
        """Stage what was written; return what commits with the checkpoint."""
        if not self._writers:
            return None
        following, staged = dict(self._state.next), {}
        for index, (stream, writer) in sorted(self._writers.items()):
            binding = self._materialization.bindings[index]
            writer.close()
            counter = following.get(binding.state_key, 0)
            following[binding.state_key] = counter + 1
            version = f"v{binding.backfill:010}"
            final = f"{binding.resource_path[-1]}/{version}/{counter:020}-{self._range}.parquet"
            name = f"{self._directory}{secrets.token_hex(_TOKEN_BYTES)}.parquet"
            self._place.create(name, stream.getvalue().to_pybytes())
            staged[name] = final
        self._writers.clear()
        self._state = ShardState(following, staged)
        return self._patch({"next": following, "staged": staged})

    def _applied(self) -> ConnectorState | None:
        """Put every staged file where it belongs; return what need not be remembered any more."""
        if not self._state.staged:
            return None
        for staged, final in self._state.staged.items():
            content = self._place.get(staged)
            if content is not None:
                self._place.create(final, content)  # If it is there, it was ours.
                self._place.delete(staged)
            elif next(self._place.list(final), None) is None:
                raise StagedFileLost(staged, final)
        done = dict.fromkeys(self._state.staged)
        self._state = ShardState(self._state.next)
        return self._patch({"staged": done})

    def _patch(self, changed: Mapping[str, Any]) -> ConnectorState:
        return ConnectorState(msgspec.json.encode({self._range: changed}), merge_patch=True)
