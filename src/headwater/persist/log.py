"""The commit log of a location as states: load, follow, and what one reads to do so.

At all times (who keeps it in brackets):

- the entries in Consensus are consecutive and end at the head                    (Consensus)
- every entry names the newest rollup that existed when it was written; that rollup, or a newer
  one, is in Blob                                       (machine, maintenance)
- entries after the newest rollup are all in Consensus                            (maintenance)

So a state is found by: the head entry, its rollup, the entries after it. If a rollup or an entry
is gone, the head has moved: begin again. Nothing here writes anything.
"""

from __future__ import annotations

from typing import Final

from headwater.base.ids import SeqNo
from headwater.persist.encoding import decode_entry, decode_state
from headwater.persist.errors import Corrupt
from headwater.persist.location import Blob, Consensus
from headwater.persist.state import State, apply

SCAN_LIMIT: Final = 1024
LOAD_ATTEMPTS_MAX: Final = 16


def rollup_key(seqno: SeqNo) -> str:
    """Return the key of the rollup at ``seqno``."""
    return f"rollup/{seqno:020d}"


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
        return load(consensus, blob)


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
