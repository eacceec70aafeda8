"""Threads of a task that give way: what takes long runs in them, and a tick goes first.

A view's first step may sort and write for a minute, beside the ticks of others and the sessions of
clients. On Linux a thread has a priority of its own, so such work is done by threads that ask for
less than their share while anybody else wants the processor, and for all of it while nobody does.
A process as a whole could not do so: a worker is used again, for ticks, and only root may raise a
priority that was lowered.

Kept by: this module. Relied on by: ``stage.py``, ``written.py``.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

NICENESS: Final = 10
"""About a tenth of the processor while somebody else wants all of it."""


def threads(count: int) -> ThreadPoolExecutor:
    """Return that many threads which give way; whoever asks for them shuts them down."""
    return ThreadPoolExecutor(count, thread_name_prefix="headwater-aside", initializer=_give_way)


def _give_way() -> None:
    if sys.platform == "linux":  # Elsewhere it would be the priority of the whole process.
        thread = threading.get_native_id()
        # A server may have been started with less than this: only root could ask for more again.
        if os.getpriority(os.PRIO_PROCESS, thread) < NICENESS:
            os.setpriority(os.PRIO_PROCESS, thread, NICENESS)
