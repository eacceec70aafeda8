"""Secrets and connections: names for what is needed to reach others, kept apart from its use.

A connection is durable as the item ``connection/<id>``: an address, and the ids of the secrets that
belong to it. A secret is durable as ``secret/<id>``, sealed (``adapter/vault.py``). Neither is in a
text that anybody shows; :class:`Connections` puts them together at the moment of use, so a changed
secret counts from the next connection on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
import psycopg

from headwater.adapter import catalog, creating, namespaces
from headwater.adapter.change import Change
from headwater.adapter.errors import InvalidDefinition, WrongKind
from headwater.adapter.object_errors import ConnectionFailed, SecretUnreadable
from headwater.adapter.redaction import HIDDEN
from headwater.adapter.sql.connection_statements import (
    AlterSecret,
    CreateConnection,
    CreateSecret,
    SecretName,
)
from headwater.adapter.sql.names import quoted_name
from headwater.adapter.sql.options import number
from headwater.adapter.vault import Vault
from headwater.base.decoding import from_json
from headwater.base.ids import GlobalId
from headwater.persist.commands import SetItem
from headwater.persist.core import Core
from headwater.persist.state import State
from headwater.storage import registry

SECRET: Final = "secret/"  # noqa: S105 - where they are, not what
CONNECTION: Final = "connection/"
CONNECT_SECONDS: Final = 10

_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "postgres": ("host", "port", "database", "user", "password", "sslmode", "sslrootcert"),
    "kafka": (
        "broker",
        "security protocol",
        "sasl mechanisms",
        "sasl username",
        "sasl password",
        "ssl ca location",
    ),
    "mysql": (
        "host",
        "port",
        "user",
        "password",
        "ssl mode",
        "ssl certificate authority",
        "ssl certificate",
        "ssl key",
    ),
    "redis": (
        "host",
        "port",
        "user",
        "password",
        "database",
        "ssl mode",
        "ssl certificate authority",
        "ssl certificate",
        "ssl key",
    ),
    "confluent schema registry": ("url", "username", "password", "ssl ca location"),
}
_REQUIRED: Final = {
    "postgres": ("host", "database", "user"),
    "kafka": ("broker",),
    "mysql": ("host", "user"),
    "redis": ("host",),
    "confluent schema registry": ("url",),
}
_SSL_MODES: Final = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
_KEPT_SECRET: Final = ("password", "sasl password")
_LIBPQ: Final = {"database": "dbname"}
_LIBRDKAFKA: Final = {
    "broker": "bootstrap.servers",
    "security protocol": "security.protocol",
    "sasl mechanisms": "sasl.mechanisms",
    "sasl username": "sasl.username",
    "sasl password": "sasl.password",
    "ssl ca location": "ssl.ca.location",
}


class ConnectionDefinition(msgspec.Struct, frozen=True):
    """One connection: what is said in clear, and which option is which secret."""

    kind: Literal["postgres", "kafka", "mysql", "redis", "confluent schema registry"]
    options: dict[str, str]
    secrets: dict[str, str] = {}


def connection_options() -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return by kind of connection the options that it needs, and all that it knows."""
    return {kind: (_REQUIRED[kind], known) for kind, known in _OPTIONS.items()}


# ---- definitions ---------------------------------------------------------------------------------


def create_secret(
    state: State, statement: CreateSecret, new_id: Callable[[], GlobalId], vault: Vault
) -> Change:
    """Plan a secret; its text has no value."""
    name = namespaces.placed(state, statement.name)
    if statement.if_not_exists and catalog.called(state, name) is not None:
        return Change("CREATE SECRET")
    catalog.refuse_duplicate(state, name)
    oid = f"u{new_id()}"
    text = f"CREATE SECRET {quoted_name(name)} AS '{HIDDEN}'"
    named = catalog.put(catalog.Object(name, "secret", text, id=oid))
    sealed = SetItem(SECRET + oid, vault.sealed(oid, statement.value))
    return Change("CREATE SECRET", (sealed, named))


def alter_secret(state: State, statement: AlterSecret, vault: Vault) -> Change:
    """Plan another value."""
    found = secret(state, statement.name)
    sealed = SetItem(SECRET + found.id, vault.sealed(found.id, statement.value))
    return Change("ALTER SECRET", (sealed,))


def create_connection(
    state: State, statement: CreateConnection, sql: str, new_id: Callable[[], GlobalId]
) -> Change:
    """Plan a connection."""
    tag, kind = "CREATE CONNECTION", statement.kind
    called = namespaces.placed(state, statement.name)
    if statement.if_not_exists and catalog.called(state, called) is not None:
        return Change(tag)
    catalog.refuse_duplicate(state, called)
    known = _OPTIONS[kind]
    clear: dict[str, str] = {}
    hidden: dict[str, str] = {}
    for name, given in statement.options.items():
        if name not in known:
            there = ", ".join(each.upper() for each in known)
            raise InvalidDefinition(
                f"a connection to {kind} takes no option {name.upper()}, only {there}"
            )
        if isinstance(given, SecretName):
            hidden[name] = secret(state, given.name).id
        elif name in _KEPT_SECRET:
            raise InvalidDefinition(
                f"{name.upper()} is a secret",
                hint=f"CREATE SECRET s AS '…', and then {name.upper()} SECRET s.",
            )
        else:
            clear[name] = str(number(name, given)) if name == "port" else str(given)
    for name in _REQUIRED[kind]:
        if name not in clear and name not in hidden:
            raise InvalidDefinition(f"a connection to {kind} needs the option {name.upper()}")
    _check_mode(clear)
    if "url" in clear:
        _refuse_address(clear["url"])
    oid = f"u{new_id()}"
    definition = ConnectionDefinition(kind, clear, hidden)
    uses = tuple(dict.fromkeys(hidden.values()))
    bound = creating.bindings(state, sql)
    named = catalog.Object(called, "connection", sql, uses=uses, id=oid, bindings=bound)
    item = SetItem(CONNECTION + oid, msgspec.json.encode(definition))
    return Change(tag, (item, catalog.put(named)))


def _check_mode(options: Mapping[str, str]) -> None:
    mode = options.get("ssl mode")
    if mode is not None and mode.lower().replace("-", "_") not in _SSL_MODES:
        raise InvalidDefinition(
            f"there is no SSL MODE {mode!r}", hint=f"There are {', '.join(_SSL_MODES)}."
        )


def _refuse_address(url: str) -> None:
    """Refuse what is no address, and one that has a password in it."""
    found = urlsplit(url)
    if found.scheme not in {"http", "https"} or not found.hostname:
        raise InvalidDefinition(
            "URL is an address that begins with http:// or https://", hint="URL 'http://host:8081'"
        )
    if found.username or found.password:
        raise InvalidDefinition(
            "a URL has no user and no password in it", hint="USERNAME 'u', PASSWORD SECRET s."
        )


def dropped(each: catalog.Object) -> tuple[SetItem, ...]:
    """Return what removes a secret or a connection."""
    prefix = SECRET if each.kind == "secret" else CONNECTION
    return (catalog.remove(each.name), SetItem(prefix + each.id, None))


def connection(state: State, name: str, kind: str) -> catalog.Object:
    """Return the connection of a name, which goes to an endpoint of this kind."""
    found = catalog.named(state, name)
    if found.kind != "connection":
        raise WrongKind(name, "connection", found.kind)
    goes = definition_of(state, found.id).kind
    if goes != kind:
        raise InvalidDefinition(f'connection "{name}" goes to {goes}, not to {kind}')
    return found


def secret(state: State, name: str) -> catalog.Object:
    """Return the secret of a name."""
    found = catalog.named(state, name)
    if found.kind != "secret":
        raise WrongKind(name, "secret", found.kind)
    return found


def definition_of(state: State, oid: str) -> ConnectionDefinition:
    """Return a connection's definition."""
    return from_json(state.items[CONNECTION + oid], ConnectionDefinition)


# ---- use -----------------------------------------------------------------------------------------


class Connections:
    """What connections say, secrets included: for those who connect, and nobody else."""

    def __init__(self, core: Core, vault: Vault) -> None:
        self._core = core
        self.vault = vault

    def __call__(self, oid: str) -> Mapping[str, Any]:
        """Return what a connection says now: ``dsn``, the options of librdkafka, or its own."""
        state = self._core.state
        if CONNECTION + oid not in state.items:
            raise ConnectionFailed("a connection", "it was dropped", None)
        definition = definition_of(state, oid)
        options = dict(definition.options)
        for name, sealed in definition.secrets.items():
            options[name] = self._secret(state, sealed)
        if definition.kind == "confluent schema registry":
            return options
        if definition.kind == "kafka":
            return {_LIBRDKAFKA[name]: value for name, value in options.items()}
        if definition.kind in ("mysql", "redis"):
            return options
        given: dict[str, Any] = {_LIBPQ.get(name, name): v for name, v in options.items()}
        given["connect_timeout"] = CONNECT_SECONDS  # Who waits may have to stop.
        return {"dsn": psycopg.conninfo.make_conninfo("", **given)}

    def _secret(self, state: State, oid: str) -> str:
        sealed = state.items.get(SECRET + oid)
        if sealed is None:
            raise SecretUnreadable("it was dropped", "Create it again.")
        return self.vault.opened(oid, sealed)

    def disclosed(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration with what its connection and secrets say in their place."""
        given = dict(config)
        oid = given.pop("connection", None)
        hidden = given.pop("secrets", {})
        told = {} if oid is None else self(oid)
        state = self._core.state
        return {**told, **given, **{name: self._secret(state, s) for name, s in hidden.items()}}

    def validate(self, name: str) -> None:
        """Connect once; refuse with the reason if that cannot be done."""
        state = self._core.state
        found = catalog.named(state, name)
        if found.kind != "connection":
            raise WrongKind(name, "connection", found.kind)
        kind, said = definition_of(state, found.id).kind, self(found.id)
        try:
            _reach(kind, said)
        except Exception as error:
            raise ConnectionFailed(f'connection "{name}"', str(error).strip(), kind) from error


def _reach(kind: str, said: Mapping[str, Any]) -> None:
    if kind == "postgres":
        with psycopg.connect(said["dsn"], connect_timeout=CONNECT_SECONDS) as connected:
            connected.execute("SELECT 1")
        return
    if kind == "mysql":
        from headwater.storage.sources.my_wire import connected as to_mysql  # Also an extra.

        to_mysql(said).close()
        return
    if kind == "redis":
        from headwater.base.redis import connected as to_redis  # And this.

        with to_redis(said) as client:
            client.ping()
        return
    if kind == "confluent schema registry":
        registry.connected(said, "VALIDATE CONNECTION").check()
        return
    from confluent_kafka.admin import AdminClient  # An extra that not everybody has.

    AdminClient(dict(said)).list_topics(timeout=CONNECT_SECONDS)
