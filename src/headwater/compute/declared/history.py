"""SCD type 2: changes by key as the history of each key.

Of one key, in the order of their sequence, changes are *runs*: as long as nothing that is tracked
changes and nothing is deleted, a change belongs to the run before it. Each run that is no deletion
is one row,

    the columns of its last change, and  __START_AT  the sequence of its first
                                         __END_AT    the sequence of the next run; NULL: none yet

which is a query over all changes, so a change that arrives late splits, joins or moves just the
rows that it should. Of two changes of a key with one sequence the one that comes first in the
canonical order of rows counts, as for type 1 (``auto_cdc``). A deletion ends the row before it
and has none itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

START: Final = "__START_AT"
END: Final = "__END_AT"

_SEQUENCE: Final = "__sequence"
_DELETED: Final = "__deleted"
_RANK: Final = "__rank"
_OPENS: Final = "__opens"
_CLOSES: Final = "__closes"


def history(
    changes: DataFrame,
    keys: Sequence[str],
    sequence: Any,
    deleted: Any,
    shown: Sequence[str],
    tracked: Sequence[str],
) -> DataFrame:
    """Return the history that changes leave.

    ``deleted`` is true of a change that ends its key; ``shown`` are the columns of the result, and
    ``tracked`` those whose change begins a row.
    """
    by = [_column(key) for key in keys]
    each = Window.partitionBy(*by, _SEQUENCE).orderBy(_SEQUENCE)
    said = changes.withColumn(_SEQUENCE, sequence).withColumn(_DELETED, deleted)
    once = said.withColumn(_RANK, f.row_number().over(each)).where(f.col(_RANK) == 1)
    order = Window.partitionBy(*by).orderBy(_SEQUENCE)
    opens = reduce(
        lambda found, name: found | ~_column(name).eqNullSafe(f.lag(_column(name)).over(order)),
        [_DELETED, *tracked],
        # Nothing is before it, which no comparison with NULL tells.
        f.lag(f.lit(True)).over(order).isNull(),
    )
    runs = once.withColumn(_OPENS, opens)
    sofar = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begun = f.max(f.when(f.col(_OPENS), f.col(_SEQUENCE))).over(sofar)
    # The next change is of another run, if there is one: this one is the last of its own.
    closes = f.coalesce(f.lead(_OPENS).over(order), f.lit(True))
    ended = runs.withColumns(
        {START: begun, END: f.lead(_SEQUENCE).over(order), _CLOSES: closes}
    ).where(f.col(_CLOSES) & ~f.col(_DELETED))
    return ended.select(*map(_column, shown), START, END)


def _column(name: str) -> Any:
    return f.col(f"`{name.replace('`', '``')}`")
