"""Where the tables of an Iceberg lake are known: its catalog, as an endpoint's configuration says.

    uri         http(s)://…                     a REST catalog
                sqlite:///FILE, postgresql://…  a catalog in a database, as Iceberg's JDBC catalog
    catalog     under which name such a database has it ("default")
    warehouse   where new tables are: a directory or s3://bucket/prefix; of a REST catalog its name
    credential, token                           what a REST catalog asks for

Object stores are reached as the usual ``AWS_*`` variables say, or as a REST catalog says.

A password in an address is never told on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from headwater.base.errors import Determinate, Indeterminate, InvalidUsage

CONFIG_SCHEMA: Final[Mapping[str, Any]] = {
    "uri": {
        "type": "string",
        "title": "A REST catalog (https://…), or a database (sqlite:///…, postgresql://…)",
        "secret": True,
    },
    "warehouse": {"type": "string", "title": "A directory, s3://bucket/prefix, or a name"},
    "catalog": {"type": "string", "title": "Name of the catalog in its database"},
    "namespace": {"type": "string", "title": "Of tables that are given without one"},
    "credential": {"type": "string", "title": "client:secret of a REST catalog", "secret": True},
    "token": {"type": "string", "title": "Bearer token of a REST catalog", "secret": True},
}
_S3: Final[Mapping[str, tuple[str, ...]]] = {
    "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "s3.access-key-id": ("AWS_ACCESS_KEY_ID",),
    "s3.secret-access-key": ("AWS_SECRET_ACCESS_KEY",),
    "s3.session-token": ("AWS_SESSION_TOKEN",),
    "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
_DRIVERS: Final = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}
"""The driver that we have, of databases of which none is named."""
_REFUSALS: Final = tuple(
    found
    for found in vars(exceptions).values()
    if isinstance(found, type) and issubclass(found, Exception)
)
"""Everything that pyiceberg raises of its own; it has no root."""


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Tell what pyiceberg refused, or where it broke."""
    try:
        yield
    except (CommitFailedException, CommitStateUnknownException) as error:
        raise Indeterminate(f"{what}: {told(error)}") from error
    except (
        *_REFUSALS,
        SQLAlchemyError,
        OSError,
        ValueError,
        NotImplementedError,
        pa.ArrowException,
    ) as error:
        raise Determinate(f"{what}: {told(error)}") from error


def told(error: Exception) -> str:
    """Return an error's words in one line."""
    cause = getattr(error, "orig", None) or error  # A database's own words, without the statement.
    return " ".join(str(cause).split())


def open_catalog(config: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Catalog:
    """Return the catalog that a configuration describes."""
    uri = str(config["uri"])
    properties = {
        name: value
        for name, variables in _S3.items()
        if (value := next((environment[v] for v in variables if environment.get(v)), None))
    }
    given = {n: str(config[n]) for n in ("warehouse", "credential", "token") if config.get(n)}
    name = str(config.get("catalog") or "default")
    if uri.startswith(("http://", "https://")):
        from pyiceberg.catalog.rest import RestCatalog

        with failing(f"cannot connect to the Iceberg catalog {uri}"):
            return RestCatalog(name, uri=uri, **properties, **given)
    if "warehouse" not in given:
        raise InvalidUsage("an Iceberg catalog in a database needs the option WAREHOUSE")
    from pyiceberg.catalog.sql import SqlCatalog

    try:
        address = make_url(uri)
    except (SQLAlchemyError, ValueError) as error:
        raise InvalidUsage(
            "the URI of an Iceberg catalog is http(s)://…, sqlite:///… or postgresql://…"
        ) from error
    address = address.set(drivername=_DRIVERS.get(address.drivername, address.drivername))
    with failing(f"cannot open the Iceberg catalog {address.render_as_string()}"):
        try:
            whole = address.render_as_string(hide_password=False)
            return SqlCatalog(name, uri=whole, **properties, warehouse=given["warehouse"])
        except ModuleNotFoundError as error:
            raise InvalidUsage(f"no driver for {address.drivername} is installed") from error
