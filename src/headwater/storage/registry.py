"""A schema registry: what the number in front of a message says about its bytes.

    bytes of a message  =  0, the id of the writer's schema (4 bytes, big endian), the record

Spoken is the documented HTTP interface of Confluent's registry, which others speak too (Karapace,
Apicurio, Redpanda): ``/subjects/{subject}/versions/latest`` when a source is made, and
``/schemas/ids/{id}`` when a message names an id for the first time.

**An id never changes its meaning**, so whatever process asks, whenever, a message is decoded the
same. Three answers are told apart, because what follows from each is different:

- a schema, with those it refers to;
- *there is no such schema* (the registry says so itself, by its own error codes): the message is no
  row, a dead letter;
- anything else (nobody answers, wrong credentials, an answer that is no registry's): a
  :class:`TransientError`. The source stalls and tries again; never is a record given up for it.

Relied on by: ``storage/avro.py``, ``storage/protobuf.py``, and the adapter when it makes a source.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import struct
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from headwater.base.decoding import from_json
from headwater.storage.errors import TransientError
from headwater.storage.format import Undecodable

TIMEOUT_S: Final = 10.0
HEADER_BYTES: Final = 5
_MAGIC: Final = 0
_HEADER: Final = struct.Struct(">BI")
_NOT_THERE: Final = {40401, 40402, 40403}
"""The registry's own codes: no such subject, version, schema."""
_REFUSED: Final = (401, 403)

Kind = Literal["AVRO", "PROTOBUF", "JSON"]


class Reference(msgspec.Struct, frozen=True):
    """Another schema that this one uses, by the name it has here."""

    name: str
    subject: str
    version: int


class Registered(msgspec.Struct, frozen=True, rename="camel"):
    """A schema as the registry has it."""

    schema: str
    schema_type: Kind = "AVRO"
    references: tuple[Reference, ...] = ()
    id: int = 0
    """Of the schema, where it was asked for by its subject."""


class _Refusal(msgspec.Struct, frozen=True):
    error_code: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Registry:
    """Where schemas are, and how to get in; a value that travels to tasks."""

    url: str
    username: str = ""
    password: str = field(default="", repr=False)
    ca_location: str = ""
    asking: str = "schema registry"
    """The source that asks, for its errors."""

    def check(self) -> None:
        """Ask once; raise if it does not answer as a registry does."""
        self._asked("/schemas/ids/1")

    def latest(self, subject: str, form: str = "") -> Registered | None:
        """Return the newest schema of a subject; ``None``: there is no such subject.

        ``form``: as what it is asked for; ``serialized`` are the descriptors of Protobuf.
        """
        return self._version(subject, "latest", form)

    def by_id(self, number: int) -> Registered | None:
        """Return the schema of an id; ``None``: there is none."""
        return self._asked(f"/schemas/ids/{number}")

    def referred(self, schema: Registered, form: str = "") -> Iterator[tuple[str, str]]:
        """Return the schemas that one refers to, by name, each after those that it uses itself."""
        yield from self._referred(schema, form, set())

    def _referred(self, schema: Registered, form: str, seen: set[str]) -> Iterator[tuple[str, str]]:
        for each in schema.references:
            if each.name in seen:
                continue
            seen.add(each.name)
            found = self._version(each.subject, str(each.version), form)
            if found is None:
                raise self._failed(f"it has no version {each.version} of {each.subject!r}")
            yield from self._referred(found, form, seen)
            yield each.name, found.schema

    def _version(self, subject: str, version: str, form: str) -> Registered | None:
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}"
        return self._asked(f"{path}?format={form}" if form else path)

    def _asked(self, path: str) -> Registered | None:
        try:
            with urllib.request.urlopen(  # noqa: S310 - http or https: below
                self._request(path), timeout=TIMEOUT_S, context=self._context()
            ) as answer:
                return from_json(answer.read(), Registered)
        except urllib.error.HTTPError as error:
            with error:
                said = _says(error)
            if said.error_code in _NOT_THERE:
                return None
            if error.code in _REFUSED:
                raise self._failed("it refuses us: check USERNAME and PASSWORD") from error
            raise self._failed(f"{error.code} {said.message or error.reason}") from error
        except msgspec.DecodeError as error:
            raise self._failed(f"its answer is no registry's: {error}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise self._failed(str(reason)) from error

    def _request(self, path: str) -> urllib.request.Request:
        if not self.url.startswith(("http://", "https://")):
            raise self._failed("an address begins with http:// or https://")
        request = urllib.request.Request(self.url.rstrip("/") + path)  # noqa: S310 - as above
        request.add_header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
        if self.username:
            pair = f"{self.username}:{self.password}".encode()
            request.add_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
        return request

    def _context(self) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=self.ca_location) if self.ca_location else None

    def _failed(self, why: str) -> TransientError:
        return TransientError(self.asking, f"schema registry at {self.url}: {why}")


def _says(error: urllib.error.HTTPError) -> _Refusal:
    try:
        return from_json(error.read(), _Refusal)
    except (msgspec.DecodeError, OSError):
        return _Refusal()


def id_of(data: bytes) -> int:
    """Return which schema a message was written with."""
    if len(data) < HEADER_BYTES:
        raise Undecodable(f"{len(data)} bytes, and no id of a schema in front of them")
    magic, number = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise Undecodable(
            f"the first byte is {magic:#04x}, not 0: it was not written through a schema registry"
        )
    return int(number)


def framed(number: int, record: bytes) -> bytes:
    """Return a record with its schema's id in front of it."""
    return _HEADER.pack(_MAGIC, number) + record


def connected(said: Mapping[str, Any], asking: str) -> Registry:
    """Return the registry that a connection speaks of."""
    return Registry(
        said["url"],
        said.get("username", ""),
        said.get("password", ""),
        said.get("ssl ca location", ""),
        asking,
    )
