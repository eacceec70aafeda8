"""PostgreSQL's arithmetic of numerics, for what Spark's decimals cannot say.

Spark finds the type of ``a / b`` from those of ``a`` and ``b``, and where 38 digits are not enough
it drops digits of the fraction in silence; PostgreSQL finds the digits of a quotient from its two
values. So the texts of PostgreSQL's dialect call functions of our own, in the sessions that
:func:`know` has seen:

    headwater_total(a, b, p, s, words, r)                 a + b
    headwater_difference(a, b, p, s, words, r)            a - b
    headwater_product(a, b, p, s, words, r)               a * b
    headwater_remainder(a, b, p, s, words, r)             a % b
    headwater_quotient(a, b, da, db, p, s, words, r)      a / b, rounded half away from zero to the
                                                       digits that PostgreSQL gives it
    headwater_fitted(a, p, s, words, r)                   a
    headwater_quotient_scale(a, b, da, db)             how many digits these are
    headwater_scale(a)                                 digits of the fraction, without the zeros
                                                       after the last

The operands are decimals of any type; the value is exact and of the type ``decimal(p, s)``, or an
error of the row: ``words`` with what does not fit in the place of ``%``. Nothing is rounded that
PostgreSQL does not round, unless ``r`` is true: then the value is rounded to ``s`` once it is known
to all of its digits. ``da`` and ``db`` are the *display scales* of the operands, with which
PostgreSQL finds that of a quotient; where one is not known (99) the quotient has
all digits of its type, so at least PostgreSQL's.

Kept by: this module and ``java/Numeric.java``; ``tests/spark/test_numerics.py`` holds it against
PostgreSQL. Relied on by: ``adapter/dialect/typed.py``, which writes the names;
``query_session.py`` and ``try_eval.py``, whose sessions have them.
"""

from __future__ import annotations

from typing import Any

from headwater.compute.catalyst.jvm import CLASSES, java_object


def know(session: Any) -> None:
    """Make the functions known to a session of ours."""
    java_object(session, CLASSES, shipped=True).numerics(session._jsparkSession)
