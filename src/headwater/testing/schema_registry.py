"""A schema registry for tests: the documented HTTP interface of Confluent's, in this process.

What of it is spoken: subjects with versions, schemas by id, references, the error codes of what is
not there, basic authentication. One id for one schema, whatever subjects have it; ids never change
their meaning. Compatibility is not judged: tests register what a careless registry would let pass.

While it is ``away`` it ends every connection without a word. (Its port is kept: somebody else might
have it, when it is back.)
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

NO_SUBJECT: Final = (404, {"error_code": 40401, "message": "Subject not found"})
NO_VERSION: Final = (404, {"error_code": 40402, "message": "Version not found"})
NO_SCHEMA: Final = (404, {"error_code": 40403, "message": "Schema not found"})
NO_ENTRY: Final = (401, {"error_code": 401, "message": "Unauthorized"})

Answer = tuple[int, Any]


class SchemaRegistry:
    """Subjects and schemas, and a server that tells of them."""

    def __init__(self, credentials: tuple[str, str] | None = None) -> None:
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._credentials = credentials
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.asked: list[str] = []
        """The paths of all requests so far."""
        self.away = False

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._port}"

    def register(
        self,
        subject: str,
        schema: str,
        kind: str = "AVRO",
        references: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """Add a version to a subject; return the id of the schema."""
        found = {"schema": schema, "schemaType": kind, "references": list(references)}
        if found not in self._schemas:
            self._schemas.append(found)
        number = self._schemas.index(found) + 1
        self._subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str, authorization: str | None) -> Answer:
        """Return the status and the body of a request."""
        if self._credentials is not None:
            pair = ":".join(self._credentials).encode()
            if authorization != f"Basic {base64.b64encode(pair).decode()}":
                return NO_ENTRY
        match [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]:
            case ["schemas", "ids", number]:
                known = 0 < int(number) <= len(self._schemas)
                return (200, self._said(int(number))) if known else NO_SCHEMA
            case ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case _:
                return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _version(self, subject: str, version: str) -> Answer:
        versions = self._subjects.get(subject)
        if versions is None:
            return NO_SUBJECT
        wanted = len(versions) if version == "latest" else int(version)
        if not 0 < wanted <= len(versions):
            return NO_VERSION
        number = versions[wanted - 1]
        return 200, {"subject": subject, "version": wanted, "id": number, **self._said(number)}

    def _said(self, number: int) -> dict[str, Any]:
        found = dict(self._schemas[number - 1])
        if found["schemaType"] == "AVRO":
            del found["schemaType"]  # As it is documented: left out, it is Avro.
        if not found["references"]:
            del found["references"]
        return found

    def start(self) -> None:
        """Answer."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                if registry.away:
                    return
                status, body = registry.answer(self.path, self.headers.get("Authorization"))
                content = msgspec.json.encode(body)
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        """End."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None


@contextmanager
def schema_registry(credentials: tuple[str, str] | None = None) -> Iterator[SchemaRegistry]:
    """Run an empty registry."""
    registry = SchemaRegistry(credentials)
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()
