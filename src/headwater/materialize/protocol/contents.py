"""What the messages of one transaction may hold, beyond their order.

- Every message names a binding that exists. A binding in delta mode is never loaded.
- A key is loaded at most once in a transaction, and a Load is answered at most once.
- Stores ascend by binding, and within it by packed key: a driver may keep one file, or one
  statement, open at a time. Strictly, except in delta mode, where a key may be stored several
  times, with updates that can be combined only where the document is.

Kept by:        the runtime, which combines before it stores. Checked by either side with
                :class:`Contents`, one for the life of a session; the cost is a comparison per
                message, and per Load a set entry if keys are to be told apart, unless they come
                in runs that ascend, as ours do.
Relied on by:   drivers.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import HeadwaterError
from headwater.materialize.protocol.messages import (
    Load,
    Loaded,
    LoadedMany,
    LoadMany,
    Message,
    StartCommit,
    Store,
    StoreMany,
)


class WrongContents(HeadwaterError):
    """A message that its transaction cannot hold. The session is over."""


class Contents:
    """The transaction in hand: what was loaded, what was stored last."""

    def __init__(self, delta_updates: Sequence[bool], *, distinct_keys: bool = True) -> None:
        self._delta_updates = tuple(delta_updates)
        self._distinct_keys = distinct_keys
        self._begin()

    def _begin(self) -> None:
        self._unanswered = [0] * len(self._delta_updates)
        self._keys: set[tuple[int, bytes]] = set()
        self._runs: dict[int, list[pa.LargeBinaryArray]] = {}
        """Keys that were loaded as ascending runs, each greater than the one before."""
        self._stored = (-1, b"")

    def check(self, message: Message) -> None:
        """Take notice of a message, sent or received; raise if the transaction cannot hold it."""
        match message:
            case Load():
                self._load(message.binding, [message.key_packed or message.key_json])
            case LoadMany():
                self._load_many(message.binding, message.keys_packed)
            case Loaded():
                self._loaded(message.binding, 1)
            case LoadedMany():
                self._loaded(message.binding, message.rows.num_rows)
            case Store():
                self._store(message.binding, message.key_packed, message.key_packed)
            case StoreMany():
                self._store_many(message)
            case StartCommit():
                self._begin()
            case _:
                pass

    def _load_many(self, binding: int, keys: pa.LargeBinaryArray) -> None:
        """Take notice of a run; one that goes on where the last ended need not be compared."""
        self._check_loads(binding)
        runs = self._runs.setdefault(binding, [])
        ends = [run[-1].as_py() for run in runs[-1:]] + [key.as_py() for key in keys[:1]]
        before, after = keys.slice(0, max(0, len(keys) - 1)), keys.slice(1)
        ascends = pc.all(pc.less(before, after), min_count=0).as_py() and ends == sorted({*ends})
        if self._keys or not ascends:
            self._load(binding, keys.to_pylist())
            return
        if len(keys):
            runs.append(keys)
        self._unanswered[binding] += len(keys)

    def _load(self, binding: int, keys: Sequence[bytes]) -> None:
        self._check_loads(binding)
        if self._distinct_keys:
            for run in self._runs.pop(binding, ()):
                self._keys.update((binding, key) for key in run.to_pylist())
            for key in keys:
                if (binding, key) in self._keys:
                    raise WrongContents(
                        f"binding {binding}: the key {key!r} is loaded twice in a transaction"
                    )
                self._keys.add((binding, key))
        self._unanswered[binding] += len(keys)

    def _check_loads(self, binding: int) -> None:
        if self._delta("Load", binding):
            raise WrongContents(f"Load of binding {binding}, which is in delta mode")

    def _loaded(self, binding: int, documents: int) -> None:
        self._delta("Loaded", binding)
        if self._unanswered[binding] < documents:
            raise WrongContents(f"binding {binding}: more documents than were asked for")
        self._unanswered[binding] -= documents

    def _store_many(self, store: StoreMany) -> None:
        keys = store.keys_packed
        if not len(keys):
            raise WrongContents(f"binding {store.binding}: a Store of no documents")
        before, after = keys.slice(0, len(keys) - 1), keys.slice(1)
        compare = pc.less_equal if self._delta("Store", store.binding) else pc.less
        if not pc.all(compare(before, after), min_count=0).as_py():
            raise WrongContents(f"Stores do not ascend within a run of binding {store.binding}")
        self._store(store.binding, keys[0].as_py(), keys[-1].as_py())

    def _store(self, binding: int, first: bytes, last: bytes) -> None:
        delta = self._delta("Store", binding)
        if (binding, first) < self._stored:
            raise WrongContents(
                f"Stores do not ascend: binding {binding}, key {first.hex()} after binding "
                f"{self._stored[0]}, key {self._stored[1].hex()}"
            )
        # A peer that sends keys as JSON alone gives us nothing to compare.
        if (binding, first) == self._stored and first and not delta:
            raise WrongContents(f"binding {binding}: the key {first.hex()} is stored twice")
        self._stored = (binding, last)

    def _delta(self, what: str, binding: int) -> bool:
        if not 0 <= binding < len(self._delta_updates):
            raise WrongContents(
                f"{what} of binding {binding}; there are {len(self._delta_updates)}"
            )
        return self._delta_updates[binding]
