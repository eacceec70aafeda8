"""Whose fault it is that a query failed as a whole: the data's, or the machine's.

A failure that the values of rows cause is an answer: whoever asks again about the same rows gets it
again, and when the rows are gone it is gone. One that the machine causes (an executor lost, a full
disk, no memory, somebody who interrupts) is none: it is tried again.

    of the data  =  a Java *exception* raised while an expression was evaluated

which is what ``headwater_try`` catches where a view is maintained row by row (``try_eval.py``), so
both kinds of view have errors at the same times. Spark's conditions are such exceptions, and those
of the libraries below it, which have none. What was being done is read from where the exception was
raised (``java/Blame.java``), never from what it says. Java's *errors* are the machine's, although a
row may well be too large for it: the same row may pass tomorrow, and a view whose answer depends on
that has none.

Kept by: this module and ``java/Blame.java``. Relied on by: ``recompute.py`` and ``select.py``.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headwater.compute.catalyst.jvm import java_object
from headwater.compute.catalyst.try_eval import OTHER, plain

_CLASSES: Final = ("Blame",)

DATA_EXCEPTION: Final = "22000"
"""The SQLSTATE of what has none."""


class Evaluated(NamedTuple):
    """What evaluating an expression has raised; ``condition`` and message as of a row's failure."""

    condition: str
    message: str
    sqlstate: str


def of_values(session: Any, error: Exception) -> Evaluated | None:
    """Return what the values of rows have caused; ``None``: they are not to blame.

    ``error`` is what PySpark or its gateway raised.
    """
    # PySpark keeps what Java raised where it knows the kind; the gateway does in any case.
    raised = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if raised is None:
        return None
    said = java_object(session, _CLASSES).of(raised)
    if said is None:
        return None
    condition, kind, message, sqlstate = said
    if not condition:
        return Evaluated(OTHER, f"{kind}: {message}", DATA_EXCEPTION)
    return Evaluated(condition, plain(message), sqlstate or DATA_EXCEPTION)
