"""Limits of calls that make a huge value of a small number.

``repeat(s, n)`` is a value of ``n`` times the bytes of ``s``; with ``n`` = 2,000,000,000 in one row
the JVM has not the memory, and ends, with every query that runs in it. So in the sessions of
:func:`bound` the functions whose *argument is a size* (``repeat``, ``space``, ``lpad``,
``rpad``, ``format_string`` and ``printf``, ``format_number``, ``sequence``, ``array_repeat``,
``array_insert``) fail, before they allocate, where the value would be larger than
:data:`VALUE_BYTES_MAX`. That is an error of the row like a division by zero.

The limit is a constant: what a machine has left differs from step to step, and a row that failed
when it came has to fail when it goes. Functions whose result is about as large as what they are
given (``concat``, ``replace``, ``array_join``) have no limit here: their rows are that large.

Plans say nothing of it: it is how their texts are run.

Kept by: this module and ``java/Bounded.java``. Relied on by: ``query_session.py``,
``try_eval.py``.
"""

from __future__ import annotations

from typing import Any, Final

from headwater.compute.catalyst.jvm import CLASSES, java_object

VALUE_BYTES_MAX: Final = 64 << 20
"""As in ``java/Bounded.java``."""


def bound(session: Any) -> None:
    """Let a session of ours keep these limits."""
    java_object(session, CLASSES, shipped=True).bound(session._jsparkSession)
