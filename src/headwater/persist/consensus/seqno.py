"""Which arguments ``Consensus`` takes, in one place for every implementation.

A sequence number is in ``[0, 2^63)``: what a BIGINT of every database holds.
"""

from __future__ import annotations

from typing import Final

from headwater.base.errors import InvalidUsage
from headwater.base.ids import SeqNo

SEQNO_MAX: Final = 2**63 - 1


def check_seqno(seqno: SeqNo) -> None:
    """Raise :class:`InvalidUsage` unless ``seqno`` is one."""
    if not 0 <= seqno <= SEQNO_MAX:
        raise InvalidUsage(f"{seqno} is not a sequence number: use 0 to {SEQNO_MAX}")


def check_limit(limit: int) -> None:
    """Raise :class:`InvalidUsage` unless ``limit`` is a number of entries."""
    if not 0 <= limit <= SEQNO_MAX:
        raise InvalidUsage(f"{limit} is not a number of entries: use 0 to {SEQNO_MAX}")


def check_truncation(seqno: SeqNo, head: SeqNo | None) -> None:
    """Raise :class:`InvalidUsage` unless entries before ``seqno`` may go: the head stays."""
    if head is None or seqno > head:
        raise InvalidUsage(
            f"cannot truncate before {seqno}: the head is {'nowhere' if head is None else head}"
        )


def follows(seqno: SeqNo, head: SeqNo | None) -> bool:
    """Whether an entry at ``seqno`` may be appended to a log with this head."""
    return seqno == (0 if head is None else head + 1)
