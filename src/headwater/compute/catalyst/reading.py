"""Casts of texts, as PostgreSQL has them: ``headwater_read('date', s)``.

Spark's own casts read other texts: no ``' Infinity '``, no ``'Jan 5, 2024'``, no
``'10:00 Europe/Berlin'``; and where they fail they say so in words of types that nobody wrote. This
function is PostgreSQL's input function of the type that it is given the name of; what it reads is
``collection/input_grammar.py``, handed over once per session. A row that is no text of the type
fails, with PostgreSQL's sentence.

It is a function of its text alone, so that it may stand in a maintained view: it is written into
texts, read back, and compared like any function of Spark's.

Kept by: this module, ``java/Reading.java`` and what that uses. Relied on by:
``query_session.py`` and ``try_eval.py``, in whose sessions it is known;
``adapter/dialect/casts.py``, which writes it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from headwater.collection import input_grammar
from headwater.compute.catalyst.jvm import CLASSES, java_object

_GRAMMAR: Final = json.dumps(input_grammar.as_data())


def register(session: Any) -> None:
    """Make the function known to a session; doing it again does no harm."""
    java_object(session, CLASSES, shipped=True).reading(session._jsparkSession, _GRAMMAR)
