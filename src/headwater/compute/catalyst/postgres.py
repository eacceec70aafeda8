"""PostgreSQL's functions of one value, for what Spark's mean otherwise.

    headwater_upper(s), headwater_lower(s)     each code point's case by itself, as of the locale
                                               C.UTF-8: upper of 'ß' is 'ß', lower of 'İ' is 'i'
    headwater_held(d)                          a date or timestamp, if it is of the years 1 to 9999,
                                               or an interval, if it is one that Spark has; else an
                                               error of the row

Spark's arithmetic of dates wraps around in silence, and neither Python nor our texts have a date
beyond the year 9999: the dialect writes ``headwater_held`` around all that finds a date, timestamp
or interval from others. It says, too, what Spark's operation has no words for. (A comparison with
the first and the last would have the operand written twice, with the subqueries in it.) They are
functions of their value alone, so they may stand in a maintained view.

Kept by: this module, ``java/Postgres.java``, ``java/Cases.java``, ``java/Held.java``. Relied on
by: ``query_session.py`` and ``try_eval.py``, in whose sessions they are known; ``adapter/dialect``,
which writes them.
"""

from __future__ import annotations

from typing import Any

from headwater.compute.catalyst.jvm import CLASSES, java_object


def register(session: Any) -> None:
    """Make the functions known to a session; doing it again does no harm."""
    java_object(session, CLASSES, shipped=True).postgres(session._jsparkSession)
