"""What the messages of one transaction may hold, beyond their order.

- Every message names a binding that exists. A binding in delta mode is never loaded.
- A key is loaded at most once in a transaction, and a Load is answered at most once.
- Stores ascend by binding, and within it by packed key: a driver may keep one file, or one
  statement, open at a time. Strictly, except in delta mode, where a key may be stored several
  times, with updates that can be combined only where the document is.

Kept by:        the runtime, which combines before it stores. Checked by either side with
                :class:`Contents`, one for the life of a session; the cost is a comparison per
                message, and per Load a set entry if keys are to be told apart.
Relied on by:   drivers.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.base.errors import HeadwaterError
from headwater.materialize.protocol.messages import Load, Loaded, Message, StartCommit, Store


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
        self._stored = (-1, b"")

    def check(self, message: Message) -> None:
        """Take notice of a message, sent or received; raise if the transaction cannot hold it."""
        match message:
            case Load():
                self._load(message)
            case Loaded():
                self._loaded(message)
            case Store():
                self._store(message)
            case StartCommit():
                self._begin()
            case _:
                pass

    def _load(self, load: Load) -> None:
        if self._delta("Load", load.binding):
            raise WrongContents(f"Load of binding {load.binding}, which is in delta mode")
        if self._distinct_keys:
            key = (load.binding, load.key_packed or load.key_json)
            if key in self._keys:
                raise WrongContents(
                    f"binding {load.binding}: the key {key[1]!r} is loaded twice in a transaction"
                )
            self._keys.add(key)
        self._unanswered[load.binding] += 1

    def _loaded(self, loaded: Loaded) -> None:
        self._delta("Loaded", loaded.binding)
        if not self._unanswered[loaded.binding]:
            raise WrongContents(f"binding {loaded.binding}: more documents than were asked for")
        self._unanswered[loaded.binding] -= 1

    def _store(self, store: Store) -> None:
        delta = self._delta("Store", store.binding)
        # A peer that sends keys as JSON alone gives us nothing to compare.
        at = (store.binding, store.key_packed)
        if at < self._stored:
            raise WrongContents(
                f"Stores do not ascend: binding {at[0]}, key {at[1].hex()} after binding "
                f"{self._stored[0]}, key {self._stored[1].hex()}"
            )
        if at == self._stored and at[1] and not delta:
            raise WrongContents(f"binding {at[0]}: the key {at[1].hex()} is stored twice")
        self._stored = at

    def _delta(self, what: str, binding: int) -> bool:
        if not 0 <= binding < len(self._delta_updates):
            raise WrongContents(
                f"{what} of binding {binding}; there are {len(self._delta_updates)}"
            )
        return self._delta_updates[binding]
