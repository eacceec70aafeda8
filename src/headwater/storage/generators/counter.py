"""COUNTER: the number ``n`` comes at place ``n``; with a bound, the oldest goes as a new one comes.

at place n:   + n,   and   - (n - keep)  once there are more than ``keep``
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.storage.generators.chance import Longs
from headwater.storage.generators.generator import with_diffs

SCHEMA: Final = pa.schema([pa.field("counter", pa.int64(), nullable=False)])


@dataclass(frozen=True, slots=True)
class Counter:
    """The numbers from 0 on."""

    keep: int | None = None
    name: str = "counter"

    @property
    def outputs(self) -> Mapping[str, pa.Schema]:
        """One output."""
        return {"counter": SCHEMA}

    def at(self, places: Longs) -> Iterator[tuple[str, Longs, pa.Table]]:
        """Return the numbers that come, and those that go."""
        yield "counter", places, with_diffs(_numbers(places), 1)
        if self.keep is not None:
            full = places[places >= self.keep]
            yield "counter", full, with_diffs(_numbers(full - self.keep), -1)


def _numbers(values: Longs) -> pa.Table:
    return pa.Table.from_arrays([pa.array(np.asarray(values, np.int64))], schema=SCHEMA)
