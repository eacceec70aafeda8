"""Every implementation of Blob, held to the one contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from headwater.persist.blob import FileBlob, MemoryBlob, S3Blob
from headwater.testing.conformance_blob import BLOB_CHECKS, OpenBlob
from headwater.testing.servers import S3Server
from headwater.testing.unreliable import Outage

each_check = pytest.mark.parametrize("check", BLOB_CHECKS, ids=lambda check: check.__name__)


@each_check
def test_memory(check: Callable[[OpenBlob], None]) -> None:
    blob = MemoryBlob()
    check(lambda: blob)


@each_check
def test_file(check: Callable[[OpenBlob], None], tmp_path: Path) -> None:
    check(lambda: FileBlob(tmp_path / "new" / "root"))
    assert FileBlob(tmp_path / "new" / "root", read_only=True).list_temporary() == ()


@each_check
def test_decorated(check: Callable[[OpenBlob], None]) -> None:
    """A decorator that injects nothing changes nothing."""
    blob = Outage().blob(MemoryBlob())
    check(lambda: blob)


@pytest.mark.server
@each_check
def test_s3(check: Callable[[OpenBlob], None], s3: S3Server) -> None:
    prefix = f"conformance/{uuid4().hex}"
    check(lambda: S3Blob.open("headwater-test", prefix, environment=s3.environment))
