"""``create_auto_cdc_flow``: changes by key, and the rows that they leave.

Each row of the source is a change: the new row of its key, or (``apply_as_deletes``) its end. By
their sequence, not by their arrival, the last change of a key says what the key has:

    { the row of the greatest sequence of each key } without those that are deletions

which is a query over all changes, so the target is kept as a materialized view of it: a change
that arrives late changes just what it should. Of two changes of a key with one sequence the
canonical order of rows decides. That is SCD type 1; type 2 keeps the rows that were, too
(``history``).
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
from headwater.compute.declared.history import END, START, history

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
    track_history_column_list: Sequence[Any] | None = None
    track_history_except_column_list: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        scd = "1" if self.stored_as_scd_type is None else str(self.stored_as_scd_type).strip()
        if scd not in ("1", "2"):
            raise NotAChange(self.target, f"there is no SCD type {scd}; there are 1 and 2")
        if not self.keys:
            raise NotAChange(self.target, "it has no keys; name the columns that identify a row")
        if self.column_list and self.except_column_list:
            raise NotAChange(self.target, "give column_list or except_column_list, not both")
        tracked, others = self.track_history_column_list, self.track_history_except_column_list
        if tracked and others:
            raise NotAChange(
                self.target,
                "give track_history_column_list or track_history_except_column_list, not both",
            )
        if (tracked or others) and scd == "1":
            raise NotAChange(self.target, "SCD type 1 has no history to track; use type 2")

    @property
    def keeps_history(self) -> bool:
        """Whether the rows that were are kept: SCD type 2."""
        return str(self.stored_as_scd_type).strip() == "2"

    def query(self, session: Any, changes: str) -> Callable[[], Any]:
        """Return the query of the target over all changes, which are in this relation."""

        def made() -> Any:
            found = session.read.table(changes)
            sequence = _expression(self.sequence_by)
            deleted = f.lit(False)
            if self.apply_as_deletes is not None:
                deleted = f.coalesce(_expression(self.apply_as_deletes), deleted)
            if self.keeps_history:
                shown = self._shown(found)
                keys = found.select(*map(_column, self.keys)).columns
                tracked = self._tracked(found, keys, shown)
                return history(found, keys, sequence, deleted, shown, tracked)
            order = Window.partitionBy(*map(_column, self.keys)).orderBy(sequence.desc())
            ranked = found.withColumn(RANK, f.row_number().over(order))
            last = ranked.where(f.col(RANK) == 1)
            if self.apply_as_deletes is not None:
                last = last.where(~deleted)
            return last.select(*map(_column, self._shown(found)))

        return made

    def _shown(self, found: Any) -> list[str]:
        """Return the columns of the target that come from the changes."""
        if self.column_list:
            return list(found.select(*map(_column, self.column_list)).columns)
        gone = _names(found, self.except_column_list)
        return [name for name in found.columns if name not in gone]

    def _tracked(self, found: Any, keys: Sequence[str], shown: Sequence[str]) -> list[str]:
        """Return the columns whose change begins a row of the history."""
        for name in (START, END):
            if name in shown:
                raise NotAChange(self.target, f"its changes have a column {name}; leave it out")
        tracked = _names(found, self.track_history_column_list)
        left_out = _names(found, self.track_history_except_column_list)
        for name in (*tracked, *left_out):
            if name not in shown:
                raise NotAChange(
                    self.target,
                    f"{name!r} is no column of it, so its history cannot be tracked; it has "
                    f"{', '.join(shown)}",
                )
        if tracked:
            return tracked
        return [name for name in shown if name not in (*keys, *left_out)]


def _names(found: Any, given: Sequence[Any] | None) -> list[str]:
    return list(found.select(*map(_column, given)).columns) if given else []


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
        *,
        track_history_column_list: Sequence[Any] | None = None,
        track_history_except_column_list: Sequence[Any] | None = None,
        **others: Any,
    ) -> None:
        unknown = [key for key, value in others.items() if value and key != "spark_conf"]
        if unknown:
            raise NotAChange(target, f"{unknown[0]} is not supported; leave it out")
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
                track_history_column_list,
                track_history_except_column_list,
            )
        )

    before = pipelines.create_auto_cdc_flow
    pipelines.create_auto_cdc_flow = create_auto_cdc_flow
    try:
        yield
    finally:
        pipelines.create_auto_cdc_flow = before
