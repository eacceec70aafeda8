"""What is S3Blob's own: buckets, refusals, silence, addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from uuid import uuid4

import pytest

from headwater.base.errors import Determinate, Indeterminate, InvalidUsage
from headwater.persist.blob import S3Blob, open_blob
from headwater.testing.servers import S3Server, s3_server

pytestmark = pytest.mark.server


@pytest.fixture
def in_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in s3.environment.items():
        monkeypatch.setenv(variable, value)


@pytest.mark.usefixtures("in_environment")
def test_addresses() -> None:
    prefix = f"addresses/{uuid4().hex}"
    blob = open_blob(f"s3://headwater-test/{prefix}")
    assert blob.create("k", b"x")
    assert open_blob("s3://headwater-test").get(f"{prefix}/k") == b"x"
    assert open_blob(f"s3://headwater-test/{prefix}-2").get("k") is None
    assert list(open_blob(f"s3://headwater-test/{prefix[:-1]}").list()) == []
    with pytest.raises(InvalidUsage):
        open_blob("s3://headwater-test/Not/A/Key")

    reader = open_blob(f"s3://headwater-test/{prefix}/", read_only=True)
    assert reader.get("k") == b"x"
    effects: list[Callable[[], object]] = [
        lambda: reader.create("l", b""),
        lambda: reader.delete("k"),
    ]
    for effect in effects:
        with pytest.raises(InvalidUsage, match="opened read-only"):
            effect()


def test_a_missing_bucket_is_determinate(s3: S3Server) -> None:
    with pytest.raises(Determinate, match="s3://no-such-bucket/: no such bucket; create it"):
        S3Blob.open("no-such-bucket", environment=s3.environment)


def test_a_bucket_deleted_meanwhile_is_not_an_empty_one() -> None:
    with s3_server() as server:
        server.create_bucket("short-lived")
        blob = S3Blob.open("short-lived", environment=server.environment)
        assert blob.get("k") is None
        server.delete_bucket("short-lived")
        for call in (
            lambda: blob.get("k"),
            lambda: blob.get_range("k", 0, 1),
            lambda: blob.create("k", b""),
            lambda: list(blob.list()),
        ):
            with pytest.raises(Determinate, match="no such bucket"):
                call()


def test_a_server_that_is_gone_is_indeterminate() -> None:
    with s3_server() as server:
        server.create_bucket("bucket")
        blob = S3Blob.open("bucket", environment=server.environment)
    for call in (
        lambda: blob.get("k"),
        lambda: blob.get_range("k", 0, 1),
        lambda: blob.create("k", b""),
        lambda: blob.delete("k"),
        lambda: list(blob.list()),
    ):
        with pytest.raises(Indeterminate, match="s3://bucket/") as failure:
            call()
        assert "\n" not in str(failure.value)


@contextmanager
def answering(
    answer: Callable[[BaseHTTPRequestHandler], None], listing: bytes = b""
) -> Iterator[S3Blob]:
    """Run a store that lists what it is told and answers everything else as told."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if "list-type" in self.path:
                reply(self, 200, b"<ListBucketResult>%s</ListBucketResult>" % listing)
            else:
                answer(self)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = Thread(target=server.serve_forever, args=(0.02,))
    serving.start()
    try:
        yield S3Blob.open(
            "bucket",
            environment={
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test-secret",
                "AWS_REGION": "us-east-1",
            },
            request_timeout=timedelta(milliseconds=500),
        )
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def reply(request: BaseHTTPRequestHandler, status: int, body: bytes = b"") -> None:
    request.send_response(status)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


@pytest.mark.parametrize(
    ("status", "failure"),
    [(403, Determinate), (401, Determinate), (500, Indeterminate), (503, Indeterminate)],
)
def test_statuses_are_sorted(status: int, failure: type[Exception]) -> None:
    requests: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        requests.append(request.command)
        reply(request, status)

    with answering(answer) as blob:
        for call in (
            lambda: blob.get("k"),
            lambda: blob.get_range("k", 0, 1),
            lambda: blob.create("k", b"x"),
            lambda: blob.delete("k"),
        ):
            with pytest.raises(failure) as raised:
                call()
            assert "test-secret" not in str(raised.value)
    assert requests.count("PUT") == 1, "a write is never repeated behind our back"


def test_a_silent_server_is_indeterminate() -> None:
    end = Event()

    def answer(_request: BaseHTTPRequestHandler) -> None:
        end.wait(10)

    with answering(answer) as blob:
        try:
            with pytest.raises(Indeterminate):
                blob.create("k", b"x")
            with pytest.raises(Indeterminate):
                blob.get("k")
        finally:
            end.set()


def test_a_conflict_without_a_winner_is_not_taken_for_existing() -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        reply(request, 409 if request.command == "PUT" else 404)

    with answering(answer) as blob, pytest.raises((Determinate, Indeterminate)):
        blob.create("k", b"x")


def test_a_store_that_lists_out_of_order_is_refused() -> None:
    listing = b"".join(
        b"<Contents><Key>%s</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified>"
        b"<ETag>e</ETag></Contents>" % key
        for key in (b"b", b"a")
    )
    refused = pytest.raises(Determinate, match="does not list in key order")
    with refused, answering(lambda _request: None, listing) as blob:
        list(blob.list())
