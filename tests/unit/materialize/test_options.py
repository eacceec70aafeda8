"""Options of endpoints: what is taken, and what is said of the rest."""

from __future__ import annotations

import pytest

from headwater.materialize.drivers.registry import DRIVERS
from headwater.materialize.options import ENDPOINTS, InvalidOption, endpoint


def test_every_driver_can_be_named() -> None:
    assert set(DRIVERS) | {"connector"} == set(ENDPOINTS)


def test_texts_become_values() -> None:
    made = endpoint(
        "Connector",
        {"COMMAND": "flow-connector 'a b' --x", "config": '{"n": 1}', "Codec": "json"},
    )
    assert made.driver == "connector"
    assert made.config == {
        "command": ["flow-connector", "a b", "--x"],
        "config": {"n": 1},
        "codec": "json",
    }


def test_tls_of_mysql_is_said_as_a_connection_says_it() -> None:
    asked = {"HOST": "h", "USER": "u", "SSL_MODE": "VERIFY-CA", "SSL_CA": "ca.pem"}
    assert endpoint("mysql", asked).config == {
        "host": "h",
        "user": "u",
        "ssl mode": "verify_ca",
        "ssl certificate authority": "ca.pem",
    }


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("oracle", {}, "there is no endpoint ORACLE; there are SQLITE, POSTGRES"),
        ("sqlite", {}, "SQLITE needs the option PATH"),
        ("webhook", {"URL": "x", "KEY": "y"}, "takes no option KEY, only URL, SECRET"),
        ("mysql", {"HOST": "h", "USER": "u", "SSL_MODE": "on"}, "'on' is none of disabled"),
        ("mysql", {"HOST": "h", "USER": "u", "SSL_KEY": "k"}, "SSL_CERTIFICATE and SSL_KEY"),
        ("connector", {"COMMAND": "x", "CONFIG": "{"}, "CONFIG cannot be read"),
        ("connector", {"COMMAND": "x", "CODEC": "xml"}, "CODEC cannot be read"),
        ("connector", {"COMMAND": "'x"}, "COMMAND cannot be read"),
        ("connector", {"CONFIG": "{}"}, "either the option COMMAND or the option ENDPOINT"),
        ("connector", {"COMMAND": "x", "ENDPOINT": "y:1"}, "either the option COMMAND"),
    ],
)
def test_what_is_wrong_is_told(kind: str, options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        endpoint(kind, options)
