"""What a driver is told, and the log is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from headwater.base.ids import GlobalId
from headwater.materialize.definition import (
    SECRETS,
    Binding,
    Definition,
    Endpoint,
    config_json,
)
from headwater.materialize.disclosing import Disclosing, NotAConfiguration
from headwater.materialize.options import InvalidOption, endpoint
from headwater.materialize.protocol.messages import Request, Response, Spec
from headwater.materialize.protocol.specs import ConnectorType


class Overheard:
    """A stream that keeps what is said."""

    def __init__(self) -> None:
        self.said: list[Request] = []

    def send(self, request: Request) -> None:
        self.said.append(request)

    def receive(self) -> Response:
        raise AssertionError("nothing is said that asks for an answer")

    def end(self) -> None: ...

    def abort(self) -> None: ...


def _told(made: Endpoint, value: str) -> Any:
    """Return the configuration that a driver is told, where the secret u7 is a value."""

    def disclose(config: Mapping[str, Any]) -> Mapping[str, Any]:
        clear = {name: given for name, given in config.items() if name != SECRETS}
        return clear | {name: {"u7": value}[oid] for name, oid in config[SECRETS].items()}

    binding = Binding("t", GlobalId(1), "x", ("k",))
    definition = Definition("m", "i", made, (binding,), ())
    kept = config_json(definition)
    assert value.encode() not in kept
    stream = Overheard()
    Disclosing(stream, disclose).send(Spec(ConnectorType.LOCAL, kept))
    (spec,) = stream.said
    assert isinstance(spec, Spec)
    return msgspec.json.decode(spec.config_json)


def _with_secret(kind: str, clear: dict[str, str], hidden: str) -> Endpoint:
    made = endpoint(kind, clear, [*clear, hidden])
    return Endpoint(made.driver, {**made.config, SECRETS: {hidden.lower(): "u7"}})


def test_the_whole_configuration_of_a_connector_is_a_secret() -> None:
    made = _with_secret("CONNECTOR", {"COMMAND": "x"}, "CONFIG")
    assert _told(made, '{"secrets": {"config": "not ours"}, "n": 1}') == {
        "secrets": {"config": "not ours"},
        "n": 1,
    }
    for wrong in ("hunter2", "[1]", '{"password": "hunter2"'):
        with pytest.raises(NotAConfiguration) as raised:
            _told(made, wrong)
        assert "hunter2" not in str(raised.value)


def test_an_option_of_a_driver_is_a_secret() -> None:
    told = _told(_with_secret("POSTGRES", {"SCHEMA": "s"}, "DSN"), "password=hunter2")
    assert told == {"schema": "s", "dsn": "password=hunter2", "hardDelete": True}


@pytest.mark.parametrize("name", ["COMMAND", "ENDPOINT", "CODEC", "PROTOCOL"])
def test_what_is_run_is_no_secret(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"{name} cannot be a secret"):
        endpoint("CONNECTOR", {"CONFIG": "{}"}, ["CONFIG", name])
