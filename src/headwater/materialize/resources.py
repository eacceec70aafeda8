"""Where a binding goes: a driver's resource configuration, from the target that the user wrote.

A driver describes the configuration of a resource by a JSON schema, in which annotations say what
each property is for: ``x-collection-name`` is where the resource is, ``x-schema-name`` the
namespace of it, ``x-delta-updates`` whether it takes delta updates. So a target can be written the
same for every driver, ours or somebody else's: ``table``, or ``schema.table`` where there are
schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headwater.base.errors import InvalidUsage
from headwater.materialize.protocol.messages import PROTOCOL, Specified


class WrongProtocol(InvalidUsage):
    """A connector of another protocol."""

    def __init__(self, found: int) -> None:
        super().__init__(f"the connector speaks protocol {found}, and we speak {PROTOCOL}")


class NoLocation(InvalidUsage):
    """A driver whose resources have no place for a name."""

    def __init__(self) -> None:
        super().__init__(
            "the connector does not say where a resource's name goes: no property of its resource "
            "schema has the annotation x-collection-name"
        )


def resource_config(specified: Specified, target: str, *, delta_updates: bool) -> dict[str, Any]:
    """Return the configuration of a target."""
    if specified.protocol != PROTOCOL:
        raise WrongProtocol(specified.protocol)
    schema = msgspec.json.decode(specified.resource_config_schema_json)
    properties: Mapping[str, Any] = schema.get("properties", {})
    location = _annotated(properties, "x-collection-name")
    if location is None:
        raise NoLocation
    config: dict[str, Any] = {location: target}
    namespace = _annotated(properties, "x-schema-name")
    before, dot, after = target.partition(".")
    if namespace is not None and dot:
        config = {namespace: before, location: after}
    delta = _annotated(properties, "x-delta-updates")
    if delta is not None and delta_updates:
        config[delta] = True
    return config


def _annotated(properties: Mapping[str, Any], annotation: str) -> str | None:
    """Return the property with an annotation."""
    for name, described in properties.items():
        if isinstance(described, Mapping) and described.get(annotation):
            return name
    return None
