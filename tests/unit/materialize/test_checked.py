"""What others tell a driver is held to its schemas, and refused by name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headwater.base.errors import InvalidUsage
from headwater.materialize.drivers.checked import BadConfiguration, Checked
from headwater.materialize.drivers.registry import DRIVERS
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.protocol.messages import (
    Apply,
    Open,
    Request,
    Spec,
    Validate,
    ValidateBinding,
    Validated,
)
from headwater.materialize.protocol.specs import MaterializationSpec


def told(request: Request) -> str:
    with pytest.raises(BadConfiguration) as raised:
        list(Checked(SqliteDriver()).respond(request))
    return str(raised.value)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (b"{}", '"path" is a required property'),
        (b"", '"path" is a required property'),
        (b"[]", 'the value is not of type "object"'),
        (b"{", "it is no JSON"),
        (b'{"path": "x", "hardDelete": "maybe"}', 'hardDelete: the value is not of type "boolean"'),
    ],
)
def test_a_configuration_that_is_wrong(config: bytes, why: str) -> None:
    expected = f"the configuration of the endpoint is not as it should be: {why}"
    assert told(Validate(config_json=config)) == expected
    spec = MaterializationSpec(config_json=config)
    assert told(Apply(materialization=spec)) == told(Open(materialization=spec)) == expected


def test_a_value_is_not_repeated() -> None:
    assert "1234567" not in told(Validate(config_json=b'{"path": 1234567}'))


def test_a_binding_that_is_wrong(tmp_path: Path) -> None:
    config = msgspec.json.encode({"path": str(tmp_path / "x.db")})
    binding = ValidateBinding(resource_config_json=b'{"tabel": "t"}')
    assert '"table" is a required property' in told(
        Validate("", config_json=config, bindings=(binding,))
    )
    (said,) = Checked(SqliteDriver()).respond(Validate(config_json=config))
    assert isinstance(said, Validated)


@pytest.mark.parametrize("name", DRIVERS)
def test_every_driver_says_what_it_lacks(name: str) -> None:
    driver = Checked(DRIVERS[name].make())
    list(driver.respond(Spec()))
    with pytest.raises(InvalidUsage):
        list(driver.respond(Validate(config_json=b"{}")))
    driver.close()
