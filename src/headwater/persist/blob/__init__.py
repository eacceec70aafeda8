"""Implementations of the Blob port, one per file, and their addresses."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from headwater.base.errors import InvalidUsage
from headwater.persist.blob.file import FileBlob
from headwater.persist.blob.key import check_key
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.blob.s3 import S3Blob
from headwater.persist.location import Blob

__all__ = ["FileBlob", "MemoryBlob", "S3Blob", "check_key", "open_blob"]


def open_blob(url_or_path: str, *, read_only: bool = False) -> Blob:
    """Open ``/a/path``, ``file:///a/path``, ``s3://bucket/prefix`` or ``memory:`` (fresh, empty).

    S3 takes endpoint, region and credentials from the usual ``AWS_*`` environment variables.
    """
    if url_or_path == "memory:":
        if read_only:
            raise InvalidUsage("memory: is empty when opened; read-only, it would stay so")
        return MemoryBlob()
    if "://" not in url_or_path:
        return FileBlob(Path(url_or_path).expanduser(), read_only)

    url = urlsplit(url_or_path)
    match url.scheme:
        case "file" if url.netloc in {"", "localhost"} and url.path:
            return FileBlob(Path(unquote(url.path)), read_only)
        case "s3" if url.netloc:
            return S3Blob.open(url.netloc, url.path.strip("/"), read_only=read_only)
        case _:
            raise InvalidUsage(
                f"{url_or_path!r} is no blob address: use a path, file:///a/path, "
                "s3://bucket/prefix or memory:"
            )
