"""Runs of documents as single messages, and back: what is between our columns and Flow's wire.

In process, ``LoadMany``, ``LoadedMany`` and ``StoreMany`` hold many documents as columns; the wire
knows one document per message. :class:`Splitting` makes single messages of runs, on the side that
speaks. :class:`Gathering` makes runs of single messages, in front of a driver that takes runs.

Which form a key has follows from the codec, and never both: packed tuples on the protobuf wire,
JSON arrays on the JSON wire. A document is its columns (``documents``); the order of its values is
that of the field selection. What is JSON stands in a document as what it is, and in a packed tuple
as the bytes of its text.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from headwater.materialize.documents import NotARow, is_text, to_documents
from headwater.materialize.drivers.columns import Column, Kind, columns_of, json_fields
from headwater.materialize.drivers.responder import Responder
from headwater.materialize.joined import joined
from headwater.materialize.projections import packable
from headwater.materialize.protocol.messages import (
    Load,
    Loaded,
    LoadedMany,
    LoadMany,
    Message,
    Open,
    Request,
    Response,
    Store,
    StoreMany,
)
from headwater.materialize.protocol.specs import BindingSpec
from headwater.materialize.tuples import Element, pack, pack_columns, unpack
from headwater.materialize.wire.framing import Codec

ROWS_AT_ONCE: Final = 10_000

_ARROW: Final[Mapping[Kind, pa.DataType]] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.BYTES: pa.binary(),
}
"""The rest are texts, which every driver can read."""


class Splitting:
    """Makes single messages of runs, for one session."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._bindings: tuple[BindingSpec, ...] = ()

    def opened(self, opening: Open) -> None:
        """Take notice of what the session is about; nothing else is said before."""
        if opening.materialization is not None:
            self._bindings = opening.materialization.bindings

    def split(self, message: Message) -> Iterator[Message]:
        """Yield what goes over the wire."""
        match message:
            case Open():
                self.opened(message)
                yield message
            case LoadMany():
                yield from self._loads(message)
            case LoadedMany():
                for document in to_documents(message.rows, self._json(message.binding)):
                    yield Loaded(message.binding, msgspec.json.encode(document))
            case StoreMany():
                yield from self._stores(message)
            case _:
                yield message

    def _json(self, binding: int) -> frozenset[str]:
        return json_fields(columns_of(self._bindings[binding]))

    def _loads(self, message: LoadMany) -> Iterator[Load]:
        for packed in message.keys_packed.to_pylist():
            if self._codec is Codec.PROTOBUF:
                yield Load(message.binding, key_packed=packed)
            else:
                key = [_to_json(element) for element in unpack(packed)]
                yield Load(message.binding, key_json=msgspec.json.encode(key))

    def _stores(self, message: StoreMany) -> Iterator[Store]:
        selection = self._bindings[message.binding].field_selection
        assert selection is not None
        flags = message.exists.to_pylist(), message.delete.to_pylist()
        if self._codec is Codec.PROTOBUF:
            packed = message.keys_packed.to_pylist()
            values = packed_values(message.rows, selection.values, self._json(message.binding))
            for key, value, exists, delete in zip(packed, values, *flags, strict=True):
                yield Store(
                    message.binding,
                    key_packed=key,
                    values_packed=value,
                    exists=exists,
                    delete=delete,
                )
            return
        documents = to_documents(message.rows, self._json(message.binding))
        for document, exists, delete in zip(documents, *flags, strict=True):
            yield Store(
                message.binding,
                key_json=msgspec.json.encode([document[name] for name in selection.keys]),
                values_json=msgspec.json.encode([document[name] for name in selection.values]),
                exists=exists,
                delete=delete,
            )


def packed_values(rows: pa.Table, names: Sequence[str], json: Collection[str]) -> list[bytes]:
    """Return some columns of each row as a packed tuple; ``json``: the columns that are JSON."""
    if not names:
        return [b""] * rows.num_rows
    arrays = [packable(joined(rows.column(name))) for name in names]
    arrays = [
        array.cast(pa.large_binary()) if name in json and is_text(array.type) else array
        for name, array in zip(names, arrays, strict=True)
    ]
    packed: list[bytes] = pack_columns(arrays).to_pylist()
    return packed


def _to_json(element: Element) -> Any:
    return base64.b64encode(element).decode() if isinstance(element, bytes) else element


class Gathering:
    """A driver that is told single documents, and takes them in runs."""

    def __init__(self, driver: Responder, rows_at_once: int = ROWS_AT_ONCE) -> None:
        self._driver = driver
        self._rows_at_once = rows_at_once
        self._columns: tuple[tuple[Column, ...], ...] = ()
        self._loads: list[Load] = []
        self._stores: list[Store] = []

    def respond(self, request: Request) -> Iterator[Response]:
        """Act upon a request; yield the responses to it."""
        match request:
            case Load():
                if self._loads and self._is_full(self._loads, request.binding):
                    yield from self._gathered()
                self._loads.append(request)
            case Store():
                if self._stores and self._is_full(self._stores, request.binding):
                    yield from self._gathered()
                self._stores.append(request)
            case _:
                if isinstance(request, Open) and request.materialization is not None:
                    self._columns = tuple(map(columns_of, request.materialization.bindings))
                yield from self._gathered()
                yield from self._driver.respond(request)

    def close(self) -> None:
        """Release the endpoint."""
        self._driver.close()

    def _is_full(self, run: Sequence[Load] | Sequence[Store], binding: int) -> bool:
        return run[0].binding != binding or len(run) >= self._rows_at_once

    def _gathered(self) -> Iterator[Response]:
        loads, stores, self._loads, self._stores = self._loads, self._stores, [], []
        if loads:
            keys = [_packed_key(self._columns[load.binding], load) for load in loads]
            run = LoadMany(loads[0].binding, pa.array(keys, pa.large_binary()))
            yield from self._driver.respond(run)
        if stores:
            yield from self._driver.respond(self._store_many(stores))

    def _store_many(self, stores: Sequence[Store]) -> StoreMany:
        binding = stores[0].binding
        columns = self._columns[binding]
        values = [column for column in columns if not column.key]
        rows = [(*_key(store), *_values(values, store)) for store in stores]
        found = list(zip(*rows, strict=True))
        return StoreMany(
            binding,
            pa.array([_packed_key(columns, store) for store in stores], pa.large_binary()),
            pa.table({c.name: _array(c, values) for c, values in zip(columns, found, strict=True)}),
            exists=pa.array([store.exists for store in stores], pa.bool_()),
            delete=pa.array([store.delete for store in stores], pa.bool_()),
        )


def _key(message: Load | Store) -> Sequence[Any]:
    if message.key_packed:
        return unpack(message.key_packed)
    key: list[Any] = msgspec.json.decode(message.key_json)
    return key


def _values(columns: Sequence[Column], message: Store) -> Sequence[Any]:
    """Return the values of a Store; what is JSON as bytes of its text."""
    if message.values_packed or not message.values_json:
        return unpack(message.values_packed)
    values: list[Any] = msgspec.json.decode(message.values_json)
    if not json_fields(columns):
        return values
    texts = msgspec.json.decode(message.values_json, type=list[msgspec.Raw])
    return [
        bytes(text) if column.kind is Kind.JSON and value is not None else value
        for column, value, text in zip(columns, values, texts, strict=True)
    ]


def _packed_key(columns: Sequence[Column], message: Load | Store) -> bytes:
    if message.key_packed:
        return message.key_packed
    keys = [column for column in columns if column.key]
    return pack(
        [_element(column, value) for column, value in zip(keys, _key(message), strict=True)]
    )


def _element(column: Column, value: Any) -> Element:
    """Return a JSON value as an element of a packed tuple."""
    if column.kind is Kind.BYTES and isinstance(value, str):
        return base64.b64decode(value)
    if column.kind is Kind.DOUBLE and isinstance(value, int):
        return float(value)
    element: Element = value
    return element


def _array(column: Column, values: Sequence[Any]) -> pa.Array:
    try:
        if column.kind is Kind.JSON:
            texts = [None if v is None else _json_text(v) for v in values]
            return pa.array(texts, pa.string())
        if column.kind in _ARROW:
            elements = [_element(column, value) for value in values]
            return pa.array(elements, _ARROW[column.kind])
        # A decimal, say, may come as a number or as the text of one.
        return pa.array([None if v is None else str(v) for v in values], pa.string())
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise NotARow(column.name, column.kind.value, error) from error


def _json_text(value: Any) -> str:
    # Packed tuples hold arrays and objects as bytes of their text.
    return value.decode() if isinstance(value, bytes) else msgspec.json.encode(value).decode()
