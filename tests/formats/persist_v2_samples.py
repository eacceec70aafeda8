"""What the golden bytes of persist's format 2 say, as values.

As in format 1, and a write capability has the token of its newest update. Where a field is added at
the end, with a default, the bytes that are written now stand behind those that were written before.
``REWRITE=1`` adds what is missing, and never takes anything away.
"""

from __future__ import annotations

import json
from pathlib import Path

import immutables
from msgspec.structs import replace

from headwater.algebra.frontier import Frontier
from headwater.base.ids import BatchId
from headwater.persist.changes import Change, Writer, WriterSet
from tests.formats import persist_v1_samples as v1
from tests.formats.persist_v1_samples import ORDERS, entry

__all__ = ["CHANGES", "LOCATION", "STATE", "entry", "load", "store"]

PATH = Path(__file__).with_name("persist_v2.json")
LOCATION = Path(__file__).with_name("persist_v2_location.tar.gz")

WRITER = Writer(Frontier.of(10), "ingest", 100, 1_700, BatchId("u1"))
NEW = Writer(Frontier.of(12), "not moved yet")

COLLECTION = replace(v1.COLLECTION, tokens=("w0", "w1", "u1"), writers={"w": WRITER, "new": NEW})
STATE = replace(v1.STATE, collections=immutables.Map({ORDERS: COLLECTION}))

CHANGES: dict[str, tuple[Change, ...]] = {
    **v1.CHANGES,
    "writer": (
        WriterSet(ORDERS, "w", WRITER),
        WriterSet(ORDERS, "new", NEW),
        WriterSet(ORDERS, "w", None),
    ),
}


def load() -> dict[str, list[str]]:
    """Return the stored bytes in hexadecimal, oldest first, by what they are."""
    stored: dict[str, list[str]] = json.loads(PATH.read_text()) if PATH.exists() else {}
    return stored


def store(golden: dict[str, list[str]]) -> None:
    """Write the stored bytes."""
    PATH.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
