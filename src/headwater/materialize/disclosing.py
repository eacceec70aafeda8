"""A stream that tells the driver what the log does not know: the secrets of a connection.

The configuration of an endpoint may name a connection by its id, and so do the specs that are kept
in the log. On the way to the driver, and nowhere else, what the connection says stands in its
place. What a connector is told may be a secret as a whole: then that is its configuration, in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from headwater.base.errors import InvalidUsage
from headwater.materialize.definition import CONFIG, SECRETS
from headwater.materialize.delivery import Stream
from headwater.materialize.protocol.messages import (
    Apply,
    Open,
    Request,
    Response,
    Spec,
    Validate,
)
from headwater.materialize.protocol.specs import MaterializationSpec

Disclose = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From a configuration to the same with what its connection says."""


class NotAConfiguration(InvalidUsage):
    """A secret that is to be a connector's configuration, and is none."""

    def __init__(self) -> None:
        super().__init__("the secret of the option CONFIG is no JSON object, as a connector needs")


class Disclosing:
    """A stream in which configurations are disclosed to the driver."""

    def __init__(self, stream: Stream, disclose: Disclose) -> None:
        self._stream = stream
        self._disclose = disclose

    def send(self, request: Request) -> None:
        """Say something to the driver, with what it needs to connect."""
        match request:
            case Spec():
                request = replace(request, config_json=self._told(request.config_json))
            case Validate():
                request = replace(
                    request,
                    config_json=self._told(request.config_json),
                    last_materialization=self._spec(request.last_materialization),
                )
            case Apply():
                request = replace(
                    request,
                    materialization=self._spec(request.materialization),
                    last_materialization=self._spec(request.last_materialization),
                )
            case Open():
                request = replace(request, materialization=self._spec(request.materialization))
            case _:
                pass
        self._stream.send(request)

    def receive(self) -> Response:
        """Wait for what the driver says next."""
        return self._stream.receive()

    def end(self) -> None:
        """End the stream."""
        self._stream.end()

    def abort(self) -> None:
        """Break the stream off."""
        self._stream.abort()

    def disclosed(self, spec: MaterializationSpec) -> MaterializationSpec:
        """Return a spec as the driver is told it; to be told to the driver, and to nobody else."""
        return replace(spec, config_json=self._told(spec.config_json))

    def _spec(self, spec: MaterializationSpec | None) -> MaterializationSpec | None:
        return None if spec is None else self.disclosed(spec)

    def _told(self, config_json: bytes) -> bytes:
        if not config_json:
            return config_json
        config = msgspec.json.decode(config_json)
        told = dict(self._disclose(config))
        if set(config) != {SECRETS} or set(config[SECRETS]) != {CONFIG}:
            return msgspec.json.encode(told)
        try:
            whole = msgspec.json.decode(told[CONFIG], type=dict[str, Any])
        except msgspec.DecodeError:
            raise NotAConfiguration from None  # Its words might repeat some of the secret.
        return msgspec.json.encode(whole)
