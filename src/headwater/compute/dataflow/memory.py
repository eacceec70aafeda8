"""What is remembered of a state from one step to the next: rows of groups that changed lately.

A state has one row per group or none. An operator that has just written the row of a group knows
it. To look it up again in the next step (open the state's runs, hash, search, compare, sum up what
is not merged yet) costs a small step more than all it computes. So the operator hands the rows of
its groups back, beside the updates that say the same, and is given them in its next step.

    memory  =  of some groups, the row that the state has for each, or that it has none

It is a value: nobody changes one, and the rows are those that a lookup would find, as the numbers
that the operator computes with. A group that is not in it is looked up. So a memory that is lost
costs time and nothing else; **which** memory is that of a state is said by who commits it
(``remembered.py``).

Bounded: a step that names more than :data:`NAMED_MAX` groups leaves none, for so many are seldom
the same again; one of more than :data:`GROUPS_MAX` groups is given up, and begins anew.

Kept by: this module; every operator's tests step with memories and without, and hold each against
the state. Relied on by: ``ops/changes.py``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]
"""``int64``, or Python's integers."""

NAMED_MAX: Final = 512
GROUPS_MAX: Final = 2048

UNKNOWN: Final = -1
"""Instead of a place: the group is not remembered."""

_BITS: Final = {32: pa.int32(), 64: pa.int64()}


def names_of(keys: Sequence[Any], most: int = NAMED_MAX) -> list[Hashable] | None:
    """Return what each group is called, given its key's columns; equal iff the keys are identical.

    ``None``: there are more of them, or values of a type whose equality in Python is another one.
    """
    if len(keys[0]) > most:
        return None
    columns: list[list[Any]] = []
    for key in keys:
        values = _values(key)
        if values is None:
            return None
        columns.append(values)
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _values(key: Any) -> list[Any] | None:
    types, type_ = pa.types, key.type
    if types.is_floating(type_) or types.is_timestamp(type_) or types.is_date32(type_):
        # A NaN is not equal to itself; Python has fewer times, with fewer digits.
        key = key.view(_BITS.get(type_.bit_width, pa.int16()))
    elif not (
        types.is_integer(type_)
        or types.is_string(type_)
        or types.is_boolean(type_)
        or types.is_decimal(type_)
        or types.is_binary(type_)
    ):
        return None
    if types.is_integer(key.type) and not key.null_count:
        numbers: list[Any] = key.to_numpy().tolist()
        return numbers
    values: list[Any] = key.to_pylist()
    return values


@dataclass(frozen=True, slots=True)
class Memory:
    """Some groups of a state."""

    places: Mapping[Hashable, int]
    """Of each group by its name, where its row is."""
    present: Mask
    """Of each place, whether the state has the row; else the group is known to have none."""
    columns: Mapping[str, Numbers]
    """Of each place, the row's numbers."""

    def __len__(self) -> int:
        return len(self.present)

    def places_of(self, names: Sequence[Hashable]) -> Longs:
        """Return where the row of each group is, or :data:`UNKNOWN`."""
        get = self.places.get
        return np.fromiter((get(name, UNKNOWN) for name in names), np.int64, len(names))

    def with_rows(
        self, names: Sequence[Hashable], columns: Mapping[str, Numbers], present: Mask
    ) -> Memory | None:
        """Return it after these groups, each named once, got these rows; ``None``: too many."""
        at = self.places_of(names)
        fresh = np.flatnonzero(at == UNKNOWN)
        known, size = len(self), len(self) + len(fresh)
        if size > GROUPS_MAX:
            return None
        places = self.places
        if len(fresh):
            at[fresh] = np.arange(known, size)
            places = {**places, **zip_names(names, fresh, known)}
        taken = np.arange(size)
        taken[at] = np.arange(known, known + len(names))
        return Memory(
            places,
            np.concatenate([self.present, present])[taken],
            {
                name: np.concatenate([column, columns[name]])[taken]
                for name, column in self.columns.items()
            },
        )


def zip_names(names: Sequence[Hashable], picked: Longs, first: int) -> dict[Hashable, int]:
    """Return consecutive places for some of these groups."""
    return dict(zip((names[n] for n in picked.tolist()), count(first), strict=False))


def begun(names: Sequence[Hashable], columns: Mapping[str, Numbers], present: Mask) -> Memory:
    """Return the memory of just these groups, each named once."""
    return Memory(dict(zip(names, count(), strict=False)), present, columns)
