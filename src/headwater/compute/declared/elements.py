"""What a project for Spark Declarative Pipelines declares: outputs, and the flows into them.

An *output* is a name that is filled or stands for a query; a *flow* is a query and the output that
it belongs to. The names are as the project writes them. Values only: nobody has looked yet whether
they fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headwater.base.errors import InvalidUsage

OutputKind = Literal["materialized view", "streaming table", "temporary view", "sink"]


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the project's files, for whoever has to mend it."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Output:
    """``@dp.materialized_view``, ``dp.create_streaming_table``, ``dp.create_sink`` and their like.

    ``schema`` is what was given, a DDL text or Spark's StructType. ``format`` and ``options`` are
    those of a sink.
    """

    name: str
    kind: OutputKind
    where: Where
    comment: str | None = None
    schema: Any = None
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flow:
    """A query into an output: a text of Spark SQL, or a function that makes a DataFrame."""

    name: str
    target: str
    query: str | Callable[[], Any]
    where: Where
    settings: Mapping[str, str] = field(default_factory=dict)


class MistakeInProject(InvalidUsage):
    """Something that the author of a project can mend, and where."""

    def __init__(self, where: Where | str, why: str) -> None:
        super().__init__(f"{where}: {why}")
