"""``create_auto_cdc_flow``: changes by key, and the rows that they leave.

Each row of the source is a change: the new row of its key, or (``apply_as_deletes``) its end. By
their sequence, not by their arrival, the last change of a key says what the key has:

    { the row of the greatest sequence of each key } without those that are deletions

which is a query over all changes, so the target is kept as a materialized view of it: a change
that arrives late changes just what it should. Of two changes of a key with one sequence the
canonical order of rows decides. That is SCD type 1; history (type 2) is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark import pipelines
from pyspark.pipelines.source_code_location import get_caller_source_code_location
from pyspark.sql import Column, Window
from pyspark.sql import functions as f

from headwater.base.errors import InvalidUsage
from headwater.compute.declared.elements import Where

RANK: Final = "__rank"


class NotAChange(InvalidUsage):
    """An AUTO CDC flow that cannot be made."""

    def __init__(self, target: str, why: str) -> None:
        super().__init__(f"AUTO CDC into {target!r}: {why}")


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """An AUTO CDC flow, as it is declared. Columns are names, texts of SQL, or Spark's."""

    name: str
    target: str
    source: str
    keys: Sequence[Any]
    sequence_by: Any
    where: Where
    apply_as_deletes: Any = None
    column_list: Sequence[Any] | None = None
    except_column_list: Sequence[Any] | None = None
    stored_as_scd_type: Any = None

    def __post_init__(self) -> None:
        if self.stored_as_scd_type is not None and str(self.stored_as_scd_type) != "1":
            raise NotAChange(self.target, "history (SCD type 2) is not supported; use type 1")
        if not self.keys:
            raise NotAChange(self.target, "it has no keys; name the columns that identify a row")
        if self.column_list and self.except_column_list:
            raise NotAChange(self.target, "give column_list or except_column_list, not both")

    def query(self, session: Any, changes: str) -> Callable[[], Any]:
        """Return the query of the target over all changes, which are in this relation."""

        def made() -> Any:
            sequence = _expression(self.sequence_by)
            keys = [_column(key) for key in self.keys]
            order = Window.partitionBy(*keys).orderBy(sequence.desc())
            ranked = session.read.table(changes).withColumn(RANK, f.row_number().over(order))
            last = ranked.where(f.col(RANK) == 1)
            if self.apply_as_deletes is not None:
                deleted = f.coalesce(_expression(self.apply_as_deletes), f.lit(False))
                last = last.where(~deleted)
            if self.column_list:
                return last.select(*map(_column, self.column_list))
            return last.drop(RANK, *(self.except_column_list or ()))

        return made


def _column(given: Any) -> Any:
    return given if isinstance(given, Column) else f.col(_quoted(given))


def _expression(given: Any) -> Any:
    return given if isinstance(given, Column) else f.expr(str(given))


def _quoted(name: str) -> str:
    return name if name.startswith("`") else f"`{name.replace('`', '``')}`"


@contextmanager
def taking(note: Callable[[Changes], None], where: Callable[[Any], Where]) -> Iterator[None]:
    """Have such flows told to ``note``: pyspark's own asks for packages of Spark Connect."""

    def create_auto_cdc_flow(
        target: str,
        source: str,
        keys: Sequence[Any],
        sequence_by: Any,
        apply_as_deletes: Any = None,
        column_list: Sequence[Any] | None = None,
        except_column_list: Sequence[Any] | None = None,
        stored_as_scd_type: Any = None,
        name: str | None = None,
        **others: Any,
    ) -> None:
        if any(value for key, value in others.items() if key != "spark_conf"):
            raise NotAChange(target, "history (SCD type 2) is not supported; use type 1")
        note(
            Changes(
                name or target,
                target,
                source,
                keys,
                sequence_by,
                where(get_caller_source_code_location(stacklevel=1)),
                apply_as_deletes,
                column_list,
                except_column_list,
                stored_as_scd_type,
            )
        )

    before = pipelines.create_auto_cdc_flow
    pipelines.create_auto_cdc_flow = create_auto_cdc_flow
    try:
        yield
    finally:
        pipelines.create_auto_cdc_flow = before
