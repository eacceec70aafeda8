"""A call that needs more of Java's stack than there is, told as what it is.

Java's regular expressions call themselves once for each repetition of a group that has
alternatives: ``(a|b)*`` over a text of a million characters is a million calls deep. How deep is
too deep depends on more than the row (on what the JVM has compiled yet), so it is no error of the
data, which would have to fail again when the row goes: a query fails, and a view stalls, at the
time of that row, alone. The JVM goes on (``session.py``: Spark would end it), and nothing waits for
an answer that nobody gives (``frame_rows`` in ``persist/spark.py``).

Kept by: this module. Relied on by: ``select.py``, ``recompute.py``, ``stepper.py``, which say it.
"""

from __future__ import annotations

from typing import Final

from headwater.compute.step import last_line

CONDITION: Final = "STACK_OVERFLOW"
SQLSTATE: Final = "54001"
"""PostgreSQL's for the same: ``statement_too_complex``."""

_OF_JAVA: Final = "java.lang.StackOverflowError"

TOLD: Final = (
    "computing a row calls more functions inside of each other than Java's stack has room for; a "
    "regular expression that repeats a choice does so on a long text: write [ab]* for (a|b)*, or "
    "(a|b)*+ where it need not be tried again"
)
_REPLACE: Final = "; replace the view by such a one, or drop it and create it when the row is gone"


def is_too_deep(error: BaseException) -> bool:
    """Whether this is what a caller gets to see of an overflow of Java's stack."""
    return _OF_JAVA in str(error)


def cause_of(error: BaseException) -> str:
    """Return what a step failed of.

    >>> cause_of(ValueError("no"))
    'no'
    >>> cause_of(ValueError("Caused by: java.lang.StackOverflowError")) == TOLD + _REPLACE
    True
    """
    return f"{TOLD}{_REPLACE}" if is_too_deep(error) else last_line(error)
