"""Spans: that something began and ended, told to whoever collects traces. By default nobody does.

    with span("statement", kind="Select"):
        …

A name is one of few, attributes are words and numbers about the thing, never texts of statements or
rows. Spans of one thread that are open at the same time are nested.

There is one collector for a process, set once by its composition root (:func:`collect`): a span is
a remark beside the work, and nothing that is computed depends on it. Without one a span costs a
look at a variable.

Kept by: this module. Relied on by: ``adapter/session.py`` and ``compute/stepper.py``, which say
what they do; ``server/otel.py``, which collects.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

Attribute = str | int


class Collector(Protocol):
    """Takes spans."""

    def span(
        self, name: str, attributes: Mapping[str, Attribute]
    ) -> AbstractContextManager[object]:
        """Return what is entered when it begins, and left when it ends, perhaps by an exception."""
        ...


_NOTHING: Final = nullcontext()
_collector: Collector | None = None


def collect(collector: Collector | None) -> None:
    """Tell spans to this one from now on; None: to nobody."""
    global _collector
    _collector = collector


def is_collected() -> bool:
    """Whether anybody is told."""
    return _collector is not None


def span(name: str, **attributes: Attribute) -> AbstractContextManager[object]:
    """Return a span, to be entered."""
    collector = _collector
    return _NOTHING if collector is None else collector.span(name, attributes)
