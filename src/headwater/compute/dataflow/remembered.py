"""Which memory is that of a state: a stamp, made by the attempt that leaves it, kept if it commits.

A step is attempted, perhaps more than once, by workers that know nothing of each other, and counts
when the driver has committed what *one* attempt of it wrote. So an attempt leaves its memories
(``memory.py``) in its own process under a stamp that nobody else has, and its note says which
states it stamped. The driver, having committed the parts of that very note, gives the stamp back in
the next step; a worker that has a memory under it has what the state holds now:

    memory under stamp  =  rows before the attempt + what the attempt wrote  =  the committed state

An attempt that failed, a twin whose answer was not taken, another process: their stamps never come
back. Merges change no row. Nobody but the steps of its one view writes a state, and one that was
written without a stamp loses the one it had (:func:`stamps`).

A process keeps so many memories (:data:`KEPT_MAX`); the ones longest unused go.

Kept by: this module. Relied on by: ``stage.py`` (in workers), the stepper (in the driver).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import uuid4

from headwater.base.ids import GlobalId
from headwater.compute.dataflow.memory import Memory

KEPT_MAX: Final = 256

Stamps = Mapping[GlobalId, str]
"""By state: the stamp of the attempt that wrote it last."""

_kept: Final[OrderedDict[tuple[str, GlobalId], Memory]] = OrderedDict()


def new_stamp() -> str:
    """Return a stamp that no other attempt has."""
    return uuid4().hex


def recall(stamp: str | None, state: GlobalId) -> Memory | None:
    """Return what this process remembers of a state under a stamp."""
    if stamp is None or (stamp, state) not in _kept:
        return None
    _kept.move_to_end((stamp, state))
    return _kept[stamp, state]


def leave(stamp: str, state: GlobalId, memory: Memory, instead_of: str | None) -> None:
    """Keep a memory; the state moves on from the one that was under ``instead_of``."""
    if instead_of is not None:
        _kept.pop((instead_of, state), None)
    _kept[stamp, state] = memory
    while len(_kept) > KEPT_MAX:
        _kept.popitem(last=False)


def stamps(
    before: Stamps, states: Iterable[GlobalId], noted: Mapping[int, str], written: Iterable[int]
) -> dict[GlobalId, str]:
    """Return the stamps of a view's states after a step that was committed (pure).

    ``noted`` are those of the attempt, ``written`` the collections that it wrote parts of.
    """
    changed = set(written)
    after: dict[GlobalId, str] = {}
    for state in states:
        stamp = noted.get(state, None if state in changed else before.get(state))
        if stamp is not None:
            after[state] = stamp
    return after
