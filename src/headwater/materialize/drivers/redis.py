"""Redis as a driver of the protocol: a hash per row, a stream per log of changes.

What a row is in Redis is ``redis_rows``. There are two ways to deliver:

    guarded   (the default) the endpoint is authoritative: rows and checkpoint change in one step,
              and a session that was replaced changes nothing more (``redis_guard``). Exactly once.
    plain     the recovery log is authoritative; rows are written by pipelines as they come, and a
              transaction that failed half way is repeated as it was. At least once; effectively
              once for rows by key.

A hash ``headwater_bindings_v1`` says what each target is: its columns, which are its key, and
whether it is a stream. That is what Validate compares with, since Redis itself has no columns.

Whatever is below ``target:`` is the binding's, and goes when it is delivered anew. Fields of a hash
that are not columns are left alone, and so is a time to live.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import permutations
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa
from redis import ConnectionError as NoConnection
from redis import Redis, RedisError
from redis import TimeoutError as NoAnswer

from headwater.base.decoding import from_json
from headwater.base.errors import Determinate, Indeterminate, InvalidUsage
from headwater.base.redis import address, connected
from headwater.materialize.checkpoint import from_text, to_text
from headwater.materialize.drivers.columns import (
    Column,
    Existing,
    columns_of,
    constraints,
)
from headwater.materialize.drivers.redis_guard import Guard, WrongType
from headwater.materialize.drivers.redis_rows import Op, keys_of_loads, loaded, ops
from headwater.materialize.drivers.responder import NotServed, specified
from headwater.materialize.drivers.sql import (
    HARD_DELETE_SCHEMA,
    LOAD_ROWS,
    backfilled,
)
from headwater.materialize.key_range import KeyHash, KeyRange
from headwater.materialize.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Applied,
    Apply,
    Flush,
    Flushed,
    Load,
    LoadedMany,
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
    BindingSpec,
    Checkpoint,
    CollectionSpec,
    MaterializationSpec,
)
from headwater.materialize.tuples import unpack

BINDINGS: Final = "headwater_bindings_v1"
COLUMNS_MAX: Final = 3_000
"""How many a command within a script can be given."""
PIPELINE_OPS: Final = 1_000
SCAN_COUNT: Final = 5_000
BULK_MAX: Final = 512 << 20
"""How long a value a Redis takes that does not say it."""

_OURS: Final = ("flow_checkpoints_v1", "headwater_")
_GLOB: Final = str.maketrans({each: f"\\{each}" for each in "*?[]^\\"})


class _Shape(msgspec.Struct, frozen=True):
    """What a target is, as the endpoint remembers it."""

    stream: bool
    columns: dict[str, str]
    key: tuple[str, ...]


class RedisDriver:
    """A driver for one database of one server."""

    documentation_url: ClassVar[str] = "https://redis.io/docs"
    config_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {
            "url": {
                "type": "string",
                "title": "redis://user:password@host:port/database",
                "secret": True,
            },
            "host": {"type": "string", "title": "Host, where there is no address"},
            "port": {"type": ["string", "integer"], "title": "Port", "default": "6379"},
            "user": {"type": "string", "title": "User"},
            "password": {"type": "string", "title": "Password", "secret": True},
            "database": {
                "type": ["string", "integer"],
                "title": "Number of the database",
                "default": "0",
            },
            "ssl mode": {"type": "string", "title": "SSL mode", "default": "disabled"},
            "guarded": {
                "type": "boolean",
                "title": "Whether rows and checkpoint change in one step: exactly once",
                "default": True,
            },
            "hardDelete": HARD_DELETE_SCHEMA,
        },
    }
    resource_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {
                "type": "string",
                "title": "What keys begin with, or the key of the stream",
                "x-collection-name": True,
            },
            "delta_updates": {"type": "boolean", "x-delta-updates": True},
        },
    }

    def __init__(self) -> None:
        self._materialization = MaterializationSpec()
        self._columns: tuple[tuple[Column, ...], ...] = ()
        self._client: Redis | None = None
        self._where = ""
        self._guard: Guard | None = None
        self._guarded = True
        self._hard_delete = True
        self._bulk_max = BULK_MAX
        self._loads: dict[int, list[pa.LargeBinaryArray]] = {}

    def respond(self, request: Request) -> Iterator[Response]:
        """Act upon a request; yield the responses to it."""
        match request:
            case Spec():
                yield specified(self)
            case Validate():
                yield self._validated(request)
            case Apply():
                yield self._applied(request)
            case Open():
                yield Opened(self._opened(request))
                # Whatever was committed is applied: by whoever committed it, or just now.
                yield Acknowledged()
            case Acknowledge():
                return
            case LoadMany():
                self._loads.setdefault(request.binding, []).append(request.keys_packed)
            case Flush():
                yield from self._flushed()
            case StoreMany():
                self._store(request)
            case StartCommit():
                yield from self._committed(request.runtime_checkpoint or Checkpoint())
            case Load() | Store():
                raise NotServed(request)

    def close(self) -> None:
        """Close the connection; what is staged and not committed has no effect."""
        if self._client is not None:
            self._client.close()

    # ---- the server --------------------------------------------------------------------------

    @property
    def _db(self) -> Redis:
        assert self._client is not None
        return self._client

    def _connect(self, config_json: bytes) -> None:
        if self._client is not None:
            return
        config = msgspec.json.decode(config_json)
        self._where = address(config)
        self._guarded = bool(config.get("guarded", True))
        self._hard_delete = bool(config.get("hardDelete", True))
        self._client = connected(config)
        with self._failing("cannot connect to"):
            self._db.ping()
            server, memory = self._db.info("server"), self._db.info("memory")
        if server.get("redis_mode") == "cluster":
            raise InvalidUsage(
                f"Redis at {self._where} is a cluster, where rows and their checkpoint can be on "
                "different servers: deliver into one Redis, with replicas if you like"
            )
        policy = str(memory.get("maxmemory_policy", ""))
        if self._guarded and memory.get("maxmemory") and policy.startswith("allkeys"):
            raise InvalidUsage(
                f"Redis at {self._where} removes rows when its memory is full (maxmemory-policy "
                f"{policy}), which is not the view then: set the policy to noeviction or to a "
                "volatile one, or deliver without a guard (GUARDED 'false')"
            )

    @contextmanager
    def _failing(self, what: str, *, perhaps: bool = False) -> Iterator[None]:
        """Tell what Redis refused; ``perhaps``: without an answer, it may have happened."""
        try:
            yield
        except (NoConnection, NoAnswer) as error:
            told = f"{what} Redis at {self._where}: {error}"
            raise (Indeterminate if perhaps else Determinate)(told) from error
        except (RedisError, pa.ArrowException) as error:
            raise Determinate(f"{what} Redis at {self._where}: {error}") from error

    # ---- Validate, Apply ---------------------------------------------------------------------

    def _validated(self, request: Validate) -> Validated:
        self._connect(request.config_json)
        resources = [msgspec.json.decode(b.resource_config_json) for b in request.bindings]
        _check_names([resource["name"] for resource in resources])
        shapes = self._shapes()
        last = request.last_materialization
        ours = () if last is None else {b.resource_path[-1] for b in last.bindings}
        bindings = []
        for binding, resource in zip(request.bindings, resources, strict=True):
            name, delta = resource["name"], bool(resource.get("delta_updates", False))
            collection = binding.collection or CollectionSpec()
            shape = shapes.get(name)
            if shape is not None and shape.stream != delta:
                kind = "a stream of changes" if shape.stream else "rows by key"
                raise InvalidUsage(f"{name!r} has {kind} already: choose another target")
            if len(collection.projections) > COLUMNS_MAX:
                raise InvalidUsage(f"a row in Redis has {COLUMNS_MAX:,} columns at most")
            existing = {} if shape is None else _existing(shape)
            bindings.append(
                ValidatedBinding(
                    constraints=tuple(
                        constraints(
                            collection, existing, lambda n, kind: n == kind.value, delta=delta
                        )
                    ),
                    resource_path=(name,),
                    delta_updates=delta,
                    # To find no row below a name takes a look at all keys of the server: not in
                    # every session, where those that are there are ours.
                    holds_data=None
                    if name in ours and not delta
                    else self._holds_data(name, delta=delta),
                )
            )
        return Validated(tuple(bindings))

    def _shapes(self) -> Mapping[str, _Shape]:
        with self._failing(f"cannot read {BINDINGS} of"):
            found = self._db.hgetall(BINDINGS)
        return {name.decode(): from_json(value, _Shape) for name, value in found.items()}

    def _holds_data(self, name: str, *, delta: bool) -> bool:
        with self._failing("cannot look for keys of"):
            if not delta:
                return next(self._keys_below(name), None) is not None
            found = self._db.type(name).decode()
            if found not in ("none", "stream"):
                raise WrongType(name, found)
            return bool(found == "stream" and self._db.xlen(name))

    def _keys_below(self, name: str) -> Iterator[bytes]:
        pattern = f"{name.translate(_GLOB)}:*"
        return iter(self._db.scan_iter(match=pattern, count=SCAN_COUNT))

    def _applied(self, request: Apply) -> Applied:
        assert request.materialization is not None
        spec = request.materialization
        self._connect(spec.config_json)
        shapes = self._shapes()
        emptied = {path[-1] for path in backfilled(request)}
        streams = {b.resource_path[-1] for b in spec.bindings if b.delta_updates}
        done = [f"UNLINK {name}{'' if name in streams else ':*'}" for name in sorted(emptied)]
        wanted = {b.resource_path[-1]: _shape(b) for b in spec.bindings}
        changed = {
            name: text
            for name, shape in wanted.items()
            if (text := _merged(shapes.get(name), shape)) != shapes.get(name)
        }
        done += [
            f"HSET {BINDINGS} {name} {msgspec.json.encode(shape).decode()}"
            for name, shape in changed.items()
        ]
        if not request.dry_run:
            with self._failing("cannot prepare"):
                if emptied and self._guarded:
                    # With the rows goes the right of whoever delivered them to add others.
                    Guard(self._db, spec.name, self._bulk_max).close_all()
                for name in emptied:
                    self._empty(name, stream=name in streams)
                for name, shape in changed.items():
                    self._db.hset(BINDINGS, name, msgspec.json.encode(shape))
        return Applied(";\n".join(done))

    def _empty(self, name: str, *, stream: bool) -> None:
        if stream:
            self._db.unlink(name)
            return
        batch: list[bytes] = []
        for key in self._keys_below(name):
            batch.append(key)
            if len(batch) == PIPELINE_OPS:
                self._db.unlink(*batch)
                batch = []
        if batch:
            self._db.unlink(*batch)

    # ---- transactions ------------------------------------------------------------------------

    def _opened(self, request: Open) -> Checkpoint | None:
        assert request.materialization is not None
        assert request.range is not None
        self._materialization = request.materialization
        self._columns = tuple(map(columns_of, request.materialization.bindings))
        self._connect(request.materialization.config_json)
        try:
            self._bulk_max = int(self._db.config_get("proto-max-bulk-len")["proto-max-bulk-len"])
        except (RedisError, KeyError):
            self._bulk_max = BULK_MAX  # Not everybody may ask.
        if not self._guarded:
            return None
        opened = KeyRange(KeyHash(request.range.key_begin), KeyHash(request.range.key_end))
        with self._failing("cannot open the key range in"):
            self._guard = Guard(self._db, request.materialization.name, self._bulk_max)
            return from_text(self._guard.open(opened))

    def _flushed(self) -> Iterator[Response]:
        loads, self._loads = self._loads, {}
        for index, asked in sorted(loads.items()):
            target = self._materialization.bindings[index].resource_path[-1]
            columns = self._columns[index]
            names = [column.name for column in columns]
            keys = pa.chunked_array(asked, pa.large_binary())
            for start in range(0, len(keys), LOAD_ROWS):
                packed = [unpack(key) for key in keys.slice(start, LOAD_ROWS).to_pylist()]
                with self._failing("cannot load from"):
                    pipeline = self._db.pipeline(transaction=False)
                    for key in keys_of_loads(target, packed):
                        pipeline.hmget(key, names)
                    rows = loaded(columns, pipeline.execute())
                if rows.num_rows:
                    yield LoadedMany(index, rows)
        yield Flushed()

    def _store(self, request: StoreMany) -> None:
        binding = self._materialization.bindings[request.binding]
        with self._failing("cannot write to"):
            todo = ops(
                binding.resource_path[-1],
                self._columns[request.binding],
                request,
                delta=binding.delta_updates,
                hard_delete=self._hard_delete,
            )
            if self._guard is None:
                self._pipe(todo)
            else:
                self._guard.store(todo)

    def _pipe(self, todo: Iterable[Op]) -> None:
        """Write without a guard."""
        pipeline = self._db.pipeline(transaction=False)
        for op in todo:
            match op.kind:
                case "d":
                    pipeline.unlink(op.key)
                case "x":
                    pipeline.execute_command("XADD", op.key, "*", *op.fields)
                case "n" | "p":
                    pipeline.execute_command("HSET", op.key, *op.fields)
                    if op.nulls:
                        pipeline.hdel(op.key, *op.nulls)
            if len(pipeline) >= PIPELINE_OPS:
                pipeline.execute()
        pipeline.execute()

    def _committed(self, checkpoint: Checkpoint) -> Iterator[Response]:
        if self._guard is not None:
            with self._failing("commit to", perhaps=True):
                self._guard.commit(to_text(checkpoint))
        yield StartedCommit()
        if self._guard is not None:
            # Committed it is; if we cannot apply it, whoever opens next does.
            with self._failing("cannot apply what is committed in"):
                self._guard.apply()
        yield Acknowledged()


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not name or name.startswith(_OURS):
            raise InvalidUsage(f"{name!r} is no target in Redis: it is empty, or a key of ours")
    for one, other in permutations(names, 2):
        if f"{other}:".startswith(f"{one}:"):
            raise InvalidUsage(
                f"the keys of {other!r} would be among those of {one!r}: choose other targets"
            )


def _shape(binding: BindingSpec) -> _Shape:
    columns = columns_of(binding)
    return _Shape(
        binding.delta_updates,
        {column.name: column.kind.value for column in columns},
        tuple(column.name for column in columns if column.key),
    )


def _merged(before: _Shape | None, now: _Shape) -> _Shape:
    """Return what a target is from now on: columns are never taken away."""
    if before is None:
        return now
    return msgspec.structs.replace(now, columns={**before.columns, **now.columns})


def _existing(shape: _Shape) -> Mapping[str, Existing]:
    keys = () if shape.stream else shape.key
    return {
        name: Existing(kind, primary_key=name in keys, required=False)
        for name, kind in shape.columns.items()
    }
