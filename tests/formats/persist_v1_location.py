"""What must be found in the golden location of format 1, which nobody writes any more.

A little of everything: parts in the log and in blob, a merged batch, a part that a seal cut in two,
an unsealed write, a rollup and entries after it, an evolved schema, an error, a destroyed name, a
table on a timeline, capabilities, garbage that was not collected yet, and a role whose holder died.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa

FIRST = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
SECOND = pa.schema([*FIRST, pa.field("w", pa.float64())])

ORDERS: dict[int, list[dict[str, Any]]] = {
    12: [{"k": 1, "v": "ann", "w": None}, {"k": 2, "v": None, "w": None}],
    20: [{"k": 2, "v": None, "w": None}, {"k": 3, "v": "cy", "w": 0.5}],
}
"""The rows of the collection ``orders`` at these times."""
UNSEALED = {"k": 4, "v": "later", "w": None}
"""A row that becomes visible when 30 is sealed."""
FAILED = "division by zero"


def unpack(source: Path, root: Path) -> None:
    """Make the location again."""
    with tarfile.open(source) as archive:
        archive.extractall(root, filter="data")
