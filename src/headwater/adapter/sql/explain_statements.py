"""The forms of EXPLAIN; part of :data:`~.statements.Statement`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from headwater.adapter.sql.statements import CreateMaterializedView, Select


@dataclass(frozen=True, slots=True)
class ExplainTimestamp:
    """``EXPLAIN TIMESTAMP [FOR] query``: the time the query would read at, and why."""

    select: Select


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """``EXPLAIN [PLAN FOR] query``: how it is answered, from what, and by which operators."""

    select: Select


@dataclass(frozen=True, slots=True)
class ExplainView:
    """``EXPLAIN {MATERIALIZED VIEW | INDEX} name``: how it is kept, with what state, how far."""

    name: str
    kind: Literal["materialized view", "index"] = "materialized view"


@dataclass(frozen=True, slots=True)
class ExplainReplacement:
    """``EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW name AS query``: what is computed anew."""

    create: CreateMaterializedView


Explain = ExplainTimestamp | ExplainQuery | ExplainView | ExplainReplacement
