"""How a query would be kept, if a view was made of it: nothing is made, and no job runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.compute.dataflow import bounds
from headwater.compute.dataflow.graph import Dataflow
from headwater.compute.install import strategy
from headwater.compute.ir import plan as plans
from headwater.compute.query import compiled
from headwater.persist import evolution
from headwater.persist.client import Client
from headwater.persist.decision import collection_named
from headwater.persist.spark_end import or_ended


def explained_query(client: Client, session: Any, sql: str, relations: Mapping[str, str]) -> str:
    """Return the operators of a query, each with its strategy, bound, and what it would keep."""
    state = client.core.state
    schemas = {
        name: evolution.from_bytes(collection_named(state, collection).schemas[-1])
        for name, collection in relations.items()
    }
    with or_ended(session):
        plan = compiled(session, sql, schemas).plan
    flow = strategy(plan)
    if isinstance(flow, Dataflow):
        return plans.as_named(bounds.written(flow), plan.functions)
    return f"recomputed once per input time: no incremental rule yet for {flow}\n"
