"""What Spark is told about the size of a relation that its tasks read.

Spark guesses how large a relation is by what it can see: of one that tasks read from a blob, the
few numbers that tell each task what to read. By that guess it would take every relation for a tiny
one, and send it through the driver's memory to all tasks of a join (a broadcast). Here a relation
that is not small is made one of unknown size, which Spark never broadcasts before it has run.

Kept by: this module. Relied on by: ``persist/spark.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headwater.persist.batch import Part
from headwater.persist.pieces import Piece

BROADCAST_BYTES_MAX: Final = 4 << 20
"""Up to this, as stored, a join may send a relation to every task instead of exchanging it."""


def numbers_of(session: Any, groups: Sequence[Sequence[Part | Piece]]) -> Any:
    """Return a frame of a partition for each group of parts, in which is the group's number."""
    numbers = session.range(0, len(groups), 1, len(groups))
    stored = sum(part.size_bytes for group in groups for part in group)
    return numbers if stored <= BROADCAST_BYTES_MAX else _of_unknown_size(session, numbers)


def _of_unknown_size(session: Any, frame: Any) -> Any:
    """Return the rows of a frame as one of whose size Spark knows nothing."""
    java = frame._jdf
    rows = java.queryExecution().toRdd()
    made = session._jsparkSession.internalCreateDataFrame(rows, java.schema(), False)
    return type(frame)(made, session)
