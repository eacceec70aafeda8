"""The commit log of a location as states: load, follow, and what one reads to do so.

At all times (who keeps it in brackets):

- the entries in Consensus are consecutive and end at the head                    (Consensus)
- every entry names the newest rollup that existed when it was written; that rollup, or a newer
  one, is in Blob                                       (machine, maintenance)
- entries after the newest rollup are all in Consensus                            (maintenance)

So a state is found by: the head entry, its rollup, the entries after it. If a rollup or an entry
is gone, the head has moved: begin again. Nothing here writes anything.

An object comes after the entry that took its writer's role, and a rollup after every entry in it.
So objects beside an empty log, or a rollup of an entry that the log does not reach, belong to
another log, or to entries that this one has lost. Whoever is about to write refuses that
(:func:`load_to_write`): to it they would all be garbage, and the sweep would delete them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from headwater.base.ids import SeqNo
from headwater.persist.encoding import decode_entry, decode_state
from headwater.persist.errors import Corrupt
from headwater.persist.location import Blob, Consensus
from headwater.persist.state import State, apply
from headwater.persist.volatile import carried

SCAN_LIMIT: Final = 1024
LOAD_ATTEMPTS_MAX: Final = 16


ROLLUPS: Final = "rollup/"
"""How the keys of rollups begin."""


def rollup_key(seqno: SeqNo) -> str:
    """Return the key of the rollup at ``seqno``."""
    return f"{ROLLUPS}{seqno:020d}"


class _Gone(Exception):
    """Something was truncated or collected under us; the head has moved on."""


def load(consensus: Consensus, blob: Blob) -> State:
    """Return the newest state of the location; the empty state for a new one."""
    gone = ""
    for _ in range(LOAD_ATTEMPTS_MAX):
        head = consensus.head()
        if head is None:
            return State()
        try:
            return _follow(consensus, _base(consensus, blob, head))
        except _Gone as error:
            if gone == f"{head}: {error}":
                break  # The same thing is missing under the same head: it will not come back.
            gone = f"{head}: {error}"
    raise Corrupt("the log", gone)


def load_to_write(consensus: Consensus, blob: Blob) -> State:
    """Return the newest state, unless the log cannot be all of this location's."""
    state = load(consensus, blob)
    parts = blob.list("part/") if state.seqno < 0 else iter(())
    found = [*(info.key for info in blob.list(ROLLUPS)), *(info.key for info in islice(parts, 1))]
    if lost_entries(state, found):
        # Perhaps somebody has just committed, and then written them: look once more.
        state = load(consensus, blob)
        problem = lost_entries(state, found)
        if problem:
            raise Corrupt("the log", f"{problem} (is it the log of this location?)")
    return state


def lost_entries(state: State, keys: Iterable[str]) -> str:
    """Say what objects, listed before the log was read, tell of entries that it lacks (pure)."""
    for key in keys:
        if state.seqno < 0 and key.startswith(("part/", ROLLUPS)):
            return f"it is empty, but there are objects, such as {key}"
        digits = key.removeprefix(ROLLUPS)
        if key != digits and digits.isdigit() and int(digits) > state.seqno:
            return f"it ends at entry {state.seqno}, but there is {key}"
    return ""


def _base(consensus: Consensus, blob: Blob, head: SeqNo) -> State:
    entries = consensus.scan(head, 1)
    if not entries or entries[0].seqno != head:
        raise _Gone(f"entry {head} is missing")
    seqno = decode_entry(head, entries[0].data).rollup
    if seqno < 0:
        return State()
    key = rollup_key(seqno)
    data = blob.get(key)
    if data is None:
        raise _Gone(f"rollup {key} is missing")
    state = decode_state(key, data)
    if state.seqno != seqno:
        raise Corrupt(f"rollup {key}", f"it holds the state at {state.seqno}")
    return state


def follow(consensus: Consensus, blob: Blob, state: State) -> State:
    """Return ``state`` moved on by every entry after it."""
    try:
        return _follow(consensus, state)
    except _Gone:
        # Truncated past us, and again while we looked: start from whatever is there now.
        return carried(state, load(consensus, blob))


def _follow(consensus: Consensus, state: State) -> State:
    while True:
        start = SeqNo(state.seqno + 1)
        entries = consensus.scan(start, SCAN_LIMIT)
        if entries and entries[0].seqno != start:
            raise _Gone(f"entries {start} to {entries[0].seqno - 1} are missing")
        for stored in entries:
            state = apply(state, decode_entry(stored.seqno, stored.data))
        if len(entries) < SCAN_LIMIT:
            return state
