"""A guarded delivery into Redis: rows and checkpoint change together, or not at all.

One hash, ``flow_checkpoints_v1:<materialization>``, has for each key range

    <range>/fence        its fence (``fences``)
    <range>/session      who opened it last: a random word, which every script asserts
    <range>/checkpoint   where it stands
    <range>/staged       while a large transaction is being applied: the session that staged it

A transaction of one chunk (:data:`CHUNK_ROWS`, :data:`CHUNK_BYTES`) is one script: who reads sees
all of it or nothing. A script stops every other client of the server, so a larger one is cut:

    stage chunk, stage chunk, …   into the list headwater_stage:<materialization>:<session>
    commit                        the checkpoint, and that the list is to be applied: one script
    apply, apply, …               the first chunk of the list, which is removed by the same script

Until the last chunk is applied, a reader sees some rows of the new checkpoint beside rows of the
old one, and ``<range>/staged`` says so.

Invariant:      rows, together with what a committed list still has to change, are the view at the
                checkpoint. Each chunk is applied once. A list that is not committed has no effect.
Kept by:        the scripts (``redis_scripts``), each of which is atomic, also in Redis's own log;
                :meth:`Guard.open`, which applies what is committed before a range changes hands.
Relied on by:   exactly once delivery.

**A Redis may forget** what it has answered, unless it writes its log before it answers
(``appendonly yes``, ``appendfsync always``). What it comes back with is as of an earlier moment: an
earlier checkpoint with its rows. A session finds that out with its next script (``moved``,
``fenced``, ``lost``), a new one by what it reads: delivery goes on from there. A session is known
by a random word and not by its fence, because a fence that was forgotten is given out twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from redis import Redis, WatchError
from redis.commands.core import Script

from headwater.base.errors import Determinate, InvalidUsage
from headwater.materialize.drivers.fences import FenceRow, Installed
from headwater.materialize.drivers.redis_rows import Op, Text
from headwater.materialize.drivers.redis_scripts import APPLY, COMMIT, COMMIT_STAGED, STAGE
from headwater.materialize.drivers.sql import CHECKPOINTS, Fenced, KeyTaken, decide_fence
from headwater.materialize.key_range import KeyRange
from headwater.materialize.projections import OP

CHUNK_ROWS: Final = 2_000
CHUNK_BYTES: Final = 1 << 20
"""What a script works on at once: some milliseconds, in which nobody else is served."""
OPEN_ATTEMPTS_MAX: Final = 100


class WrongType(InvalidUsage):
    """A key that holds something else."""

    def __init__(self, key: str, found: str) -> None:
        super().__init__(
            f"the key {key!r} holds a {found}, which somebody else put there: remove or rename it, "
            "or choose another target"
        )


class WentBack(Determinate):
    """The server is at an earlier state than the one it had answered."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"Redis has gone back to an earlier state ({what}): it was restarted or another server "
            "took its place, and it had not yet made durable what it had answered. Delivery goes "
            "on from the checkpoint that it has; with appendfsync always it forgets nothing"
        )


def checkpoints_key(materialization: str) -> str:
    """Return the key of a materialization's checkpoints."""
    return f"{CHECKPOINTS}:{materialization}"


def _stage_key(materialization: str, session: str) -> str:
    return f"headwater_stage:{materialization}:{session}"


class Guard:
    """One session of one key range."""

    def __init__(self, client: Redis, materialization: str, bulk_max: int) -> None:
        """``bulk_max``: how long a value the server takes."""
        self._client = client
        self._name = materialization
        self._bulk_max = bulk_max
        self._hash = checkpoints_key(materialization)
        self._session = uuid.uuid4().hex
        self._row: FenceRow | None = None
        self._checkpoint = ""
        """What was committed last."""
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._staged = 0
        scripts = (STAGE, COMMIT, COMMIT_STAGED, APPLY)
        self._stage, self._commit, self._commit_staged, self._apply = map(
            client.register_script, scripts
        )

    # ---- fences ------------------------------------------------------------------------------

    def open(self, opened: KeyRange) -> str:
        """Take a key range; return its checkpoint."""
        for _ in range(OPEN_ATTEMPTS_MAX):
            self.finish(opened)
            with self._client.pipeline() as transaction:
                transaction.watch(self._hash)
                rows = _rows(transaction.hgetall(self._hash))
                overlapping = {key: row for key, row in rows.items() if key.overlaps(opened)}
                if any("staged" in row for row in overlapping.values()):
                    continue  # Somebody committed in the meantime.
                decided = decide_fence([_fence(key, row) for key, row in rows.items()], opened)
                transaction.multi()
                self._write(transaction, decided)
                for row in overlapping.values():
                    # Nobody adds to it any more, and nothing of it was committed.
                    transaction.unlink(_stage_key(self._name, row.get("session", "")))
                try:
                    transaction.execute()
                except WatchError:
                    continue
            self._row, self._checkpoint = decided.row, decided.row.checkpoint
            return self._checkpoint
        raise Determinate(f"materialization {self._name!r} is being opened by others all the time")

    def _write(self, transaction: Redis, decided: Installed) -> None:
        """Write who owns which range from now on."""
        for gone in decided.removed:
            transaction.hdel(self._hash, *(f"{gone}/{name}" for name in _FIELDS))
        for row in decided.raised:
            transaction.hset(self._hash, f"{row.key_range}/fence", str(row.fence))
            transaction.hdel(self._hash, f"{row.key_range}/session")
        own = decided.row
        values = {"fence": str(own.fence), "session": self._session, "checkpoint": own.checkpoint}
        transaction.hset(
            self._hash, mapping={f"{own.key_range}/{name}": v for name, v in values.items()}
        )

    def finish(self, opened: KeyRange) -> None:
        """Apply what is committed of all ranges that overlap one, whoever committed it."""
        for key_range, row in _rows(self._client.hgetall(self._hash)).items():
            if key_range.overlaps(opened) and "staged" in row:
                self._apply_all(key_range, row["staged"])

    def close_all(self) -> None:
        """Take every range from whoever has it, once what is committed is applied."""
        for _ in range(OPEN_ATTEMPTS_MAX):
            self.finish(KeyRange.full())
            with self._client.pipeline() as transaction:
                transaction.watch(self._hash)
                rows = _rows(transaction.hgetall(self._hash))
                if any("staged" in row for row in rows.values()):
                    continue
                transaction.multi()
                for key_range, row in rows.items():
                    transaction.hincrby(self._hash, f"{key_range}/fence", 1)
                    transaction.hdel(self._hash, f"{key_range}/session")
                    transaction.unlink(_stage_key(self._name, row.get("session", "")))
                try:
                    transaction.execute()
                except WatchError:
                    continue
            return
        raise Determinate(f"materialization {self._name!r} is being opened by others all the time")

    # ---- transactions ------------------------------------------------------------------------

    def store(self, ops: Iterable[Op]) -> None:
        """Take what is to be done with the transaction."""
        for op in ops:
            encoded = _encoded(op)
            full = len(self._pending) == CHUNK_ROWS
            if self._pending and (full or self._pending_bytes + len(encoded) > CHUNK_BYTES):
                self._stage_pending()
            if len(encoded) + _HEADER_BYTES > self._bulk_max:
                raise Determinate(
                    f"a row of {len(encoded):,} bytes is larger than what the server takes; raise "
                    "its proto-max-bulk-len"
                )
            self._pending.append(encoded)
            self._pending_bytes += len(encoded)

    def commit(self, checkpoint: str) -> None:
        """Commit what was stored, and the checkpoint; what is staged is not applied yet."""
        if self._staged:
            if self._pending:
                self._stage_pending()
            answer = self._run(self._commit_staged, str(self._staged), self._checkpoint, checkpoint)
        else:
            answer = self._run(self._commit, OP, self._chunk(), self._checkpoint, checkpoint)
        self._check(answer)
        self._checkpoint = checkpoint

    def apply(self) -> None:
        """Apply what is committed and not applied."""
        if self._staged:
            self._staged = 0
            self._apply_all(self._own.key_range, self._session)

    @property
    def _own(self) -> FenceRow:
        assert self._row is not None
        return self._row

    def _chunk(self) -> bytes:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        return b"\xdd" + len(pending).to_bytes(4, "big") + b"".join(pending)

    def _stage_pending(self) -> None:
        self._check(self._run(self._stage, OP, self._chunk()))
        self._staged += 1

    def _apply_all(self, key_range: KeyRange, session: str) -> None:
        keys = [self._hash, _stage_key(self._name, session)]
        while True:
            answer = self._apply(keys=keys, args=[str(key_range), session])
            if answer[0] == b"done":
                return
            if answer[0] != b"more":
                self._check(answer)

    def _run(self, script: Script, *arguments: str | bytes) -> Sequence[Any]:
        own = [str(self._own.key_range), self._session]
        keys = [self._hash, _stage_key(self._name, self._session)]
        answer: Sequence[Any] = script(keys=keys, args=[*own, *arguments])
        return answer

    def _check(self, answer: Sequence[Any]) -> None:
        """Raise what a script found, if it was not done."""
        word, *found = (_text(each) for each in answer)
        match word:
            case "ok":
                return
            case "fenced":
                raise self._fenced()
            case "moved":
                raise WentBack("another checkpoint")
            case "lost":
                raise WentBack(f"{found[0]} of {self._staged} staged chunks")
            case "type":
                raise WrongType(*found)
            case "taken":
                raise KeyTaken(found[0].rpartition(":")[:1], found[0])
            case _:
                raise AssertionError(word)

    def _fenced(self) -> Fenced | WentBack:
        """Return why the range is not ours: whoever opens one has a fence that is not below ours,
        unless the server has forgotten that we were there."""
        rows = _rows(self._client.hgetall(self._hash))
        own = self._own
        fences = [int(row["fence"]) for at, row in rows.items() if at.overlaps(own.key_range)]
        if max(fences, default=0) < own.fence:
            return WentBack("it knows nothing of our session")
        return Fenced(self._name, own)


_ENCODER: Final = msgspec.msgpack.Encoder()
_HEADER_BYTES: Final = 5
_FIELDS: Final = ("fence", "session", "checkpoint", "staged")


def _encoded(op: Op) -> bytes:
    """Return an op as a script reads it: Redis's MessagePack knows bytes only as strings."""
    if isinstance(op.key, bytes) or any(isinstance(each, bytes) for each in op.fields):
        return _ENCODER.encode((op.kind, _raw(op.key), [_raw(v) for v in op.fields], op.nulls))
    return _ENCODER.encode(op)


def _raw(value: Text) -> Text | msgspec.Raw:
    if isinstance(value, str):
        return value
    return msgspec.Raw(b"\xdb" + len(value).to_bytes(4, "big") + value)


def _text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _rows(found: Mapping[bytes, bytes]) -> dict[KeyRange, dict[str, str]]:
    """Return the rows of the hash, by key range."""
    rows: dict[KeyRange, dict[str, str]] = {}
    for name, value in found.items():
        key_range, _, field = name.decode().partition("/")
        rows.setdefault(KeyRange.parse(key_range), {})[field] = value.decode()
    return rows


def _fence(key_range: KeyRange, row: Mapping[str, str]) -> tuple[int, int, int, str]:
    return key_range.begin, key_range.end, int(row["fence"]), row["checkpoint"]
