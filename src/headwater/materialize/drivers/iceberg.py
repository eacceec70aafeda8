"""Iceberg as a driver of the protocol; what it has in common with other lakes: ``lake_driver``.

A transaction writes its rows into files below their tables, where nobody sees them, and the keys
whose rows change or go into others, and says what is to become of them
(:class:`~.iceberg_tables.Work`). They are applied each table by one commit of the catalog: files of
rows become the table's, and rows of the keys go. The commit carries an application transaction,
which is read before: so work is in the table once (``iceberg_tables``). Files of a transaction that
never committed are left to ``remove_orphan_files``, like any writer's.

Whole numbers are ``long``, decimals ``decimal`` of their own digits, what has parts is a text
(JSON), all else is what Iceberg calls it. Which catalog it is, ``iceberg_catalog`` tells.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from headwater.base.decoding import from_json
from headwater.base.errors import InvalidUsage
from headwater.materialize.drivers.iceberg_catalog import CONFIG_SCHEMA, failing, open_catalog
from headwater.materialize.drivers.iceberg_files import RowFiles
from headwater.materialize.drivers.iceberg_tables import Tables, Work
from headwater.materialize.drivers.iceberg_types import arrow_type, holds, native_type
from headwater.materialize.drivers.lake import Dialect, table_of
from headwater.materialize.drivers.lake_driver import LakeDriver, ShardState
from headwater.materialize.drivers.sql import HARD_DELETE_SCHEMA, table_config
from headwater.materialize.protocol.specs import BindingSpec

NAMESPACE: Final = "default"
"""Of a table that is given without one."""
_NAME_BYTES: Final = 8
_PART: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
ICEBERG: Final = Dialect("Iceberg table", native_type, arrow_type, holds, lambda _: None)


class _Staging:
    """The files of one binding in the transaction in hand."""

    def __init__(self, rows: RowFiles, gone: RowFiles) -> None:
        self.rows, self.gone = rows, gone

    def discard(self) -> None:
        """Leave no file behind."""
        self.rows.discard()
        self.gone.discard()


class IcebergDriver(LakeDriver[Work, _Staging]):
    """A driver for the Iceberg tables of one catalog."""

    documentation_url: ClassVar[str] = "https://iceberg.apache.org"
    config_schema: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "required": ["uri"],
        "properties": {**CONFIG_SCHEMA, "hardDelete": HARD_DELETE_SCHEMA},
    }
    resource_schema: ClassVar[Mapping[str, Any]] = table_config("namespace")

    dialect: ClassVar[Dialect] = ICEBERG

    def __init__(self) -> None:
        super().__init__()
        self._catalog: Catalog | None = None
        self._opened: Tables | None = None
        self._namespace = NAMESPACE

    def close(self) -> None:
        """Release the catalog; what is written and not committed goes."""
        super().close()
        if self._catalog is not None:
            self._catalog.close()
        self._catalog = self._opened = None

    @property
    def _tables(self) -> Tables:
        assert self._opened is not None
        return self._opened

    def _connect(self, config: Mapping[str, Any]) -> None:
        if self._opened is None:
            self._namespace = config.get("namespace") or NAMESPACE
            self._catalog = open_catalog(config)
            self._opened = Tables(self._catalog)

    def _path(self, resource: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parts of a table's name; what is before the last dot is its namespace."""
        namespace = resource.get("namespace") or self._namespace
        parts = tuple(f"{namespace}.{resource['table']}".split("."))
        # A part becomes a directory of the warehouse.
        if not all(map(_PART.match, parts)):
            raise InvalidUsage(
                f"{'.'.join(parts)!r} is no name for an Iceberg table: use letters, digits, _ and "
                "-, and dots between namespaces"
            )
        return parts

    def _remembered(self, state_json: bytes) -> dict[str, ShardState[Work]]:
        return from_json(state_json, dict[str, ShardState[Work]])

    def _stage(
        self, index: int, rows: pa.Table, gone: pa.BooleanArray, new: pa.BooleanArray
    ) -> None:
        binding = self._materialization.bindings[index]
        table = table_of(binding)
        if index not in self._staging:
            found = self._tables.named(table)
            self._staging[index] = _Staging(RowFiles(found), RowFiles(found))
        staging = self._staging[index]
        with failing(f"cannot write to Iceberg table {table}"):
            staging.rows.write(rows.filter(pc.invert(gone)))
            if not binding.delta_updates:
                # What is new replaces nothing, unless the row of a key that was deleted softly.
                replaced = pc.invert(new) if self._hard_delete else pc.is_valid(new)
                names = [column.name for column in self._keys(index)]
                staging.gone.write(rows.select(names).filter(replaced))

    def _ended(self, binding: BindingSpec, staging: _Staging) -> Iterator[tuple[str, Work]]:
        table, owner = table_of(binding), self._materialization.name
        app = f"{owner}/{binding.state_key}/{self._range}"
        with failing(f"cannot write to Iceberg table {table}"):
            rows, gone = staging.rows.ended(), staging.gone.ended()
        if rows or gone:
            version = self._tables.next_version(table, app)
            generation = self._tables.generation(table, owner)
            name = secrets.token_hex(_NAME_BYTES)
            yield name, Work(table, app, version, owner, generation, rows, gone)

    def _apply(self, name: str, work: Work) -> None:
        del name  # The work itself names its files.
        self._tables.apply(work)
