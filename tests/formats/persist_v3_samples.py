"""What the golden bytes of persist's format 3 say, as values: a collection that is volatile.

All else is written as format 2. ``REWRITE=1`` adds what is missing, and never takes anything away.
"""

from __future__ import annotations

import json
from pathlib import Path

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId, GlobalId
from headwater.persist.batch import Part, Segment
from headwater.persist.changes import Appended, Codec, CollectionCreated, Reader, ReaderSet
from headwater.persist.state import apply_change
from tests.formats import persist_v2_samples as v2
from tests.formats.persist_v1_samples import entry

__all__ = ["CREATED", "KEEPING", "STATE", "entry", "load", "store"]

PATH = Path(__file__).with_name("persist_v3.json")
TOTALS = GlobalId(8)

CREATED = (
    CollectionCreated(
        TOTALS,
        "u8",
        b"schema",
        ("k",),
        "run",
        Codec("arrow", 1),
        Frontier.of(5),
        None,
        owner=False,
        volatile=True,
    ),
    ReaderSet(TOTALS, "r", Reader(Frontier.of(6), "output totals")),
)
STATE = v2.STATE
for change in CREATED:
    STATE = apply_change(STATE, change)

HELD = Part(
    where=Segment("part/server/3-9-ab", 64, 1_000, 99),
    layout="run",
    schema=0,
    errors=False,
    rows=3,
    diff_sum=1,
    time_min=5,
    time_max=8,
)
KEEPING = apply_change(STATE, Appended(TOTALS, BatchId("step"), Frontier.of(9), (HELD,)))
"""The same, in the process that keeps it."""


def load() -> dict[str, list[str]]:
    """Return the stored bytes in hexadecimal, oldest first, by what they are."""
    stored: dict[str, list[str]] = json.loads(PATH.read_text()) if PATH.exists() else {}
    return stored


def store(golden: dict[str, list[str]]) -> None:
    """Write the stored bytes."""
    PATH.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
