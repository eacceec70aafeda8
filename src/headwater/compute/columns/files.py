"""Parts that are whole Parquet files, read by Spark's own reader.

A part of layout ``parquet`` that is alone in its object is a file like any other. It is verified
here, all of it, against the checksum that the log has of it; Spark verifies its pages once more.

Spark is told not to compare predicates with the file's statistics: to those a NaN is nothing, to
Spark's ``>`` it is the greatest value.

Kept by: this module. Relied on by: ``columns/frame.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from headwater.persist.batch import Part, Segment
from headwater.persist.layout import PARQUET
from headwater.persist.location import Blob
from headwater.persist.part import verify_segment
from headwater.persist.spark import spark_schema

_VERIFIED: Final = "spark.hadoop.parquet.page.verify-checksum.enabled"
_PLAIN: Final = re.compile(r"[\w./-]+")
"""Paths that mean themselves: Spark takes the others for patterns, and decodes them."""


def path_of(part: Part, blob: Blob) -> str | None:
    """Return the path of a part that is a whole file; ``None`` if it is not."""
    if part.layout != PARQUET.name or not isinstance(part.where, Segment) or part.where.offset:
        return None
    path = blob.local_path(part.where.key)
    if path is None or not _PLAIN.fullmatch(str(path)):
        return None
    try:
        return str(path) if path.stat().st_size == part.where.length else None
    except FileNotFoundError:
        return None


def files_frame(session: Any, parts: Sequence[tuple[Part, str]], schema: pa.Schema) -> Any | None:
    """Return the rows of whole files; ``None`` if this Spark would not read them as we do."""
    names = [name.lower() for name in schema.names]
    if session.sparkContext.getConf().get(_VERIFIED) != "true" or len(set(names)) < len(names):
        return None
    for part, path in parts:
        assert isinstance(part.where, Segment), "a file is a segment"
        with pa.memory_map(path) as file:
            verify_segment(part.where, file.read_buffer(), f"object {part.where.key} at 0")
    session.conf.set("spark.sql.parquet.filterPushdown", "false")
    # Whatever a file says of who wrote it, its days are those of today's calendar.
    reader = session.read.schema(spark_schema(schema)).option("datetimeRebaseMode", "CORRECTED")
    return reader.parquet(*(path for _, path in parts))
