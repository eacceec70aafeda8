"""Intents: a transaction that was begun at an endpoint which forgets nothing is repeated as it was.

An endpoint that neither keeps our checkpoint nor applies staged work once (a webhook, a plain
key/value store, somebody else's connector) keeps what a failed attempt has told it. If the next
attempt reached further, a row that came in the first and went before the second would be no change
of the two together, and stay there for ever:

    attempt 1   [c, t)      row comes: told          fails, nothing is committed
    attempt 2   [c, u)      row came and went: nothing to tell

So such an endpoint is told of nothing before our log holds *up to where* the transaction goes: its
intent. Whoever comes after a failure (the next session, another process, after a pause) first
delivers ``[c, t)``, and only then what has come since.

What a transaction delivers follows from its positions and its key range alone: inputs are definite,
they are held before ``c``, so that no compaction moves an update over ``t``; documents are ordered
by binding and packed key, and those of one key by what they are. So the repeated transaction has
the same documents in the same order. A receiver by key then stands where the first attempt would
have brought it; one that remembers idempotency keys has everything once, also if a process that was
given up goes on later, because all that it can still say was intended, and repeated before anything
newer.

Between two attempts

- a column may be added to a collection: rows of before have NULL there;
- a view may be replaced: what was begun with the old one is repeated from the old one;
- limits may be changed: they do not decide what is in a transaction, except for the parts of a
  first snapshot, and those are cut where the intent says;
- ``BACKFILL`` forgets the intent with the position: everything is delivered from the beginning;
- key ranges stay: what is to be split or joined is drained, and drained is only who owes nothing.

Invariant:      at an endpoint that :func:`~.drivers.registry.repeats`, all that was ever stored is
                before the position of its shard, or in the intent.
Kept by:        ``delivery``, which makes the intent durable before the first Store, and forgets it
                with the commit; ``runtime``, ``feed`` and ``first``, which repeat.
Relied on by:   what is promised as effectively once.
"""

from __future__ import annotations

import msgspec

from headwater.materialize.checkpoint import Position


class Intent(msgspec.Struct, frozen=True):
    """A transaction that was begun, and of which the endpoint may have seen something."""

    position: Position
    """Where it leads to."""
    first: bool = False
    """Whether it is a part of the first snapshot; else it is what changed."""
