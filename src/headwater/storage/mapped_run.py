"""Keyed runs in files: mapped, so that memory holds just what is looked at.

A run that lies on this disk is mapped where it lies. One from elsewhere (an object store), or one
made here, is put into a file first, where Python puts temporary files (``TMPDIR``, which should not
be in memory). That file has no name once it is mapped: nothing is left behind, whatever becomes of
us.

Relied on by: ``storage/upsert_range.py``, ``storage/keyed_state.py``.
"""

from __future__ import annotations

import tempfile
from typing import Any

from headwater.collection.run import Run
from headwater.persist.batch import Segment
from headwater.persist.location import Blob


def mapped(data: Any) -> Run:
    """Return a run that is in a file, which nobody else sees."""
    with tempfile.NamedTemporaryFile(prefix="headwater-run-") as file:
        file.write(data)
        file.flush()
        return Run.open(file.name)


def mapped_from(blob: Blob, where: Segment) -> Run:
    """Return the run that a segment is."""
    path = blob.local_path(where.key)
    if path is None:
        return mapped(blob.get_range(where.key, where.offset, where.length))
    return Run.open(path, where.offset, where.length)
