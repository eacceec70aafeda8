"""Spec and Validate: what a driver is asked before anything is made, and what its answers mean.

Kept by: :func:`validated_spec`, which sessions, dry runs and new materializations all go through;
what it returns is what will be applied, or it raises why that cannot be.
"""

from __future__ import annotations

from headwater.materialize.combine import Bound
from headwater.materialize.definition import (
    Definition,
    config_json,
    delivered_schema,
    to_spec,
    to_validate,
)
from headwater.materialize.delivery import Stream, UnexpectedResponse
from headwater.materialize.protocol.messages import Spec, Specified, Validated
from headwater.materialize.protocol.specs import ConnectorType, MaterializationSpec
from headwater.materialize.resources import resource_config
from headwater.persist import evolution
from headwater.persist.client import Client
from headwater.persist.decision import collection_of


def validated_spec(
    client: Client,
    definition: Definition,
    stream: Stream,
    last: MaterializationSpec | None = None,
    last_version: str = "",
) -> tuple[MaterializationSpec, tuple[Bound, ...], Validated]:
    """Ask a driver whether it can; return the spec, and the bindings as combining sees them."""
    state = client.core.state
    schemas = [
        evolution.from_bytes(collection_of(state, binding.collection).schemas[-1])
        for binding in definition.bindings
    ]
    delivered = [
        delivered_schema(binding, schema, hard_delete=definition.hard_delete)
        for binding, schema in zip(definition.bindings, schemas, strict=True)
    ]
    stream.send(Spec(ConnectorType.LOCAL, config_json(definition)))
    specified = stream.receive()
    if not isinstance(specified, Specified):
        raise UnexpectedResponse(f"{type(specified).__name__} instead of Specified")
    resources = [
        resource_config(specified, binding.target, delta_updates=binding.delta_updates)
        for binding in definition.bindings
    ]
    asked = to_validate(definition, resources, delivered, last, last_version)
    stream.send(asked)
    validated = stream.receive()
    if not isinstance(validated, Validated):
        raise UnexpectedResponse(f"{type(validated).__name__} instead of Validated")
    spec = to_spec(definition, asked, validated)
    bound = tuple(
        Bound(index, binding, found.state_key, goes, tuple(schema.names))
        for index, (binding, found, goes, schema) in enumerate(
            zip(definition.bindings, spec.bindings, delivered, schemas, strict=True)
        )
    )
    return spec, bound, validated
