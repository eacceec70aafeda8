"""A driver whose configurations others write: held to its own schemas before it sees them.

Our options are checked where SQL is read. What somebody else's runtime says, or what stands in the
``CONFIG`` of a connector, is checked here, as the driver's answer to Spec describes it: what is
missing or of another type is refused by its name. No value is repeated, as it may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

import jsonschema_rs
import msgspec

from headwater.base.errors import InvalidUsage
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.protocol.messages import (
    Apply,
    Open,
    Request,
    Response,
    Spec,
    Specified,
    Validate,
)

_MASK: Final = "the value"


class BadConfiguration(InvalidUsage):
    """A configuration that is not what the driver asks for."""

    def __init__(self, of: str, where: str, why: str) -> None:
        super().__init__(f"the configuration of the {of} is not as it should be: {where}{why}")


class Checked:
    """A driver that is told nothing else than it asks for."""

    def __init__(self, driver: Responder) -> None:
        self._driver = driver

    def respond(self, request: Request) -> Iterator[Response]:
        """Refuse what the driver could not understand; else let it respond."""
        match request:
            case Validate():
                self._check(request.config_json, [b.resource_config_json for b in request.bindings])
            case Apply() | Open() if request.materialization is not None:
                spec = request.materialization
                self._check(spec.config_json, [b.resource_config_json for b in spec.bindings])
            case _:
                pass
        yield from self._driver.respond(request)

    def close(self) -> None:
        """Release the driver."""
        self._driver.close()

    @cached_property
    def _schemas(self) -> tuple[Any, Any]:
        (said,) = self._driver.respond(Spec())
        assert isinstance(said, Specified)
        return (
            jsonschema_rs.validator_for(said.config_schema_json.decode(), mask=_MASK),
            jsonschema_rs.validator_for(said.resource_config_schema_json.decode(), mask=_MASK),
        )

    def _check(self, endpoint: bytes, bindings: list[bytes]) -> None:
        of_endpoint, of_binding = self._schemas
        _hold("endpoint", endpoint, of_endpoint)
        for binding in bindings:
            _hold("binding", binding, of_binding)


def _hold(of: str, config_json: bytes, schema: Any) -> None:
    try:
        config = msgspec.json.decode(config_json or b"{}")
    except msgspec.DecodeError:
        raise BadConfiguration(of, "", "it is no JSON") from None
    for error in schema.iter_errors(config):
        where = "".join(f"{part}: " for part in error.instance_path)
        raise BadConfiguration(of, where, error.message)
