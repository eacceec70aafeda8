"""Dead letters: records that could not be decoded, as data.

A record that cannot be decoded never stops its source. Its bytes go to the *dead-letter
collection* of the source, with the place it has, the output it was meant for and the reason, at
the time it would have had: appended with the outputs, in the same entry, so that either both are
there or neither.

Whether reads of the output then fail is the output's declared :class:`Policy`:

- ``FAIL``: the output's error side has it too, so every read from that time on fails with it, until
  it is retracted (for an upsert: by the next value of its key). What is shown is never wrong.
- ``SKIP``: the output goes on without it; the dead letters alone tell.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.persist.evolution import DIFF, ERROR_SCHEMA, TIME, updates_schema

SCHEMA: Final = pa.schema(
    [
        pa.field("output", pa.string(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
"""The columns of a dead-letter collection."""

CONDITION: Final = "undecodable_record"
"""The condition under which the error side has it."""


class Policy(enum.Enum):
    """What an undecodable record does to its output."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record that could not be decoded."""

    partition: str
    offset: int
    time: int
    key: bytes | None
    value: bytes | None
    reason: str

    @property
    def message(self) -> str:
        """What a person reads."""
        return f"record {self.offset} of partition {self.partition!r}: {self.reason}"


def letters_table(output: str, letters: Sequence[DeadLetter]) -> pa.Table:
    """Return the updates of the dead-letter collection."""
    rows = [
        {
            "output": output,
            "partition": letter.partition,
            "offset": letter.offset,
            "key": letter.key,
            "value": letter.value,
            "reason": letter.reason,
            TIME: letter.time,
            DIFF: 1,
        }
        for letter in letters
    ]
    return pa.Table.from_pylist(rows, schema=updates_schema(SCHEMA))


@dataclass(frozen=True, slots=True)
class ErrorUpdate:
    """An update of the error side of an output; ``context`` is the key of an upsert."""

    message: str
    context: str | None
    time: int
    diff: int


def errors_table(errors: Sequence[ErrorUpdate]) -> pa.Table:
    """Return the updates of an error side."""
    rows = [
        {
            "condition": CONDITION,
            "message": error.message,
            "context": error.context,
            TIME: error.time,
            DIFF: error.diff,
        }
        for error in errors
    ]
    return pa.Table.from_pylist(rows, schema=updates_schema(ERROR_SCHEMA))
