"""Keyed runs in files: mapped, so that memory holds just what is looked at.

A run that lies on this disk is mapped where it lies. One from elsewhere (an object store), or one
made here, is put into a file without a name first (``base/scratch.py``): nothing is left behind,
whatever becomes of us.

Relied on by: ``storage/upsert_range.py``, ``storage/keyed_state.py``.
"""

from __future__ import annotations

from typing import Any

from headwater.base.scratch import nameless, path_of
from headwater.collection.run import Run
from headwater.persist.batch import Segment
from headwater.persist.location import Blob


def mapped(data: Any) -> Run:
    """Return a run that is in a file, which nobody else sees."""
    with nameless() as file:
        file.write(data)
        file.flush()
        return Run.open(path_of(file))


def mapped_from(blob: Blob, where: Segment) -> Run:
    """Return the run that a segment is."""
    path = blob.local_path(where.key)
    if path is None:
        return mapped(blob.get_range(where.key, where.offset, where.length))
    return Run.open(path, where.offset, where.length)
