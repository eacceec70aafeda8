"""KEY VALUE: messages with a key and a value, for UPSERT; the first ``keys`` places are a snapshot.

    at place n < keys:   key n,                     its first value
    at place n >= keys:  a key by chance,           a new value; none in one of ``deletes`` (deletes
                                                    the key)

Keys and values are JSON: ``{"key": 3}``, ``{"value": "…", "place": 17}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.storage.generators.chance import Longs, below, words
from headwater.storage.source import MESSAGE


@dataclass(frozen=True, slots=True)
class KeyValue:
    """Values of a fixed set of keys."""

    keys: int
    seed: int = 0
    value_bytes: int = 16
    deletes: int = 0
    """One message in so many deletes its key; 0 for none."""
    name: str = "key_value"

    @property
    def outputs(self) -> Mapping[str, pa.Schema]:
        """One output, of raw messages."""
        return {"key_value": MESSAGE}

    def at(self, places: Longs) -> Iterator[tuple[str, Longs, pa.Table]]:
        """Return the message at each place."""
        keys = np.where(places < self.keys, places, below(self.seed, 1, places, self.keys))
        gone = np.zeros(len(places), np.bool_)
        if self.deletes:
            drawn = below(self.seed, 2, places, self.deletes) == 0
            gone = drawn & (places >= self.keys)
        texts = words(self.seed, 3, places)
        width = self.value_bytes
        values = [
            None
            if dead
            else b'{"value": "%s", "place": %d}'
            % ((b"%016x" % word * (width // 16 + 1))[:width], n)
            for dead, word, n in zip(gone.tolist(), texts.tolist(), places.tolist(), strict=True)
        ]
        payload = pa.Table.from_arrays(
            [
                pa.array([b'{"key": %d}' % key for key in keys.tolist()], pa.binary()),
                pa.array(values, pa.binary()),
            ],
            schema=MESSAGE,
        )
        yield "key_value", places, payload
