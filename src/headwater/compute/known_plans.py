"""Plans of queries that were asked before: a dashboard asks the same thing all day.

A plan depends on the text, on the columns of the relations it may mention and on nothing else, as
long as the session has no functions of the user's: those may be registered anew at any time, so a
query of such a session is compiled each time. What could not be compiled is not kept.

Kept by: this module, for the process, some hundred of them. Relied on by: ``compute/select.py``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import pyarrow as pa

from headwater.compute.ir.plan import Plan

PLANS_MAX: Final = 256

_Asked: TypeAlias = tuple[str, frozenset[tuple[str, bytes]]]

_lock: Final = threading.Lock()
_known: Final[OrderedDict[_Asked, Plan]] = OrderedDict()


def known_or(text: str, schemas: Mapping[str, pa.Schema], compiled: Callable[[], Plan]) -> Plan:
    """Return the plan of a query over these relations; compiles it if nobody asked it lately."""
    columns = ((name, schema.serialize().to_pybytes()) for name, schema in schemas.items())
    asked = (text, frozenset(columns))
    with _lock:
        plan = _known.get(asked)
        if plan is not None:
            _known.move_to_end(asked)
            return plan
    plan = compiled()
    with _lock:
        _known[asked] = plan
        while len(_known) > PLANS_MAX:
            _known.popitem(last=False)
    return plan
