"""Objects in a bucket of S3 or of a compatible store, through obstore.

Exclusive creation is ``PUT`` with ``If-None-Match: *``; the store makes it atomic and durable.
The store must be strongly consistent and list in key order: AWS general purpose buckets, MinIO,
Ceph and R2 are and do; S3 directory buckets do not list in order and are refused when seen.

obstore's own retries are off. A retried ``PUT`` could meet its own first attempt and report
"exists" for what it created; persist retries where it can tell the two apart.

**Sorting of failures.** Permission, authentication and a missing bucket are Determinate: the
store answered, and refused. Everything else, timeouts first, is Indeterminate.

**Delete** asks first, since S3 does not say whether there was anything to delete. Of two
deletes of one key at the same moment both may therefore answer ``True``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import S3Store

from headwater.base.errors import Determinate, ExternalError, Indeterminate, InvalidUsage
from headwater.persist.blob.key import check_key, check_prefix, check_range
from headwater.persist.location import ObjectInfo

CONNECT_TIMEOUT: Final = timedelta(seconds=5)
REQUEST_TIMEOUT: Final = timedelta(seconds=60)
LIST_CHUNK: Final = 1000

_REFUSED: Final = (
    PermissionDeniedError,
    UnauthenticatedError,
    InvalidPathError,
    NotSupportedError,
    UnknownConfigurationKeyError,
)


def s3_store(
    bucket: str,
    environment: Mapping[str, str] = os.environ,
    request_timeout: timedelta = REQUEST_TIMEOUT,
) -> S3Store:
    """Return a bucket as the usual ``AWS_*`` variables say; plain http if the endpoint is."""
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    settings = {
        "access_key_id": environment.get("AWS_ACCESS_KEY_ID"),
        "secret_access_key": environment.get("AWS_SECRET_ACCESS_KEY"),
        "session_token": environment.get("AWS_SESSION_TOKEN"),
        "region": environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"),
        "endpoint": endpoint,
    }
    try:
        return S3Store(
            bucket,
            config={name: value for name, value in settings.items() if value},  # type: ignore[arg-type]  # built from a mapping
            client_options={
                "allow_http": bool(endpoint and endpoint.startswith("http://")),
                "connect_timeout": CONNECT_TIMEOUT,
                "timeout": request_timeout,
            },
            retry_config={"max_retries": 0},
        )
    except (BaseError, ValueError) as cause:
        raise Determinate(f"s3://{bucket}: {_first_line(cause)}") from cause


class S3Blob:
    """Objects under ``prefix`` (which may be empty) in the bucket of ``store``."""

    def __init__(self, store: S3Store, prefix: str = "", read_only: bool = False) -> None:
        if prefix:
            check_key(prefix)
        self._store = store
        self._base = f"{prefix}/" if prefix else ""
        self._read_only = read_only
        self._check_bucket()

    @staticmethod
    def open(
        bucket: str,
        prefix: str = "",
        *,
        read_only: bool = False,
        environment: Mapping[str, str] = os.environ,
        request_timeout: timedelta = REQUEST_TIMEOUT,
    ) -> S3Blob:
        """Connect as the usual ``AWS_*`` variables say; plain http if the endpoint is."""
        store = s3_store(bucket, environment, request_timeout)
        return S3Blob(store, prefix, read_only)

    @property
    def url(self) -> str:
        """The address under which another process, with the same environment, opens it."""
        return f"s3://{self._store.config['bucket']}/{self._base}".rstrip("/")

    def get(self, key: str) -> bytes | None:
        """Return the whole object, or ``None`` where there is none."""
        path = self._path(key)
        try:
            return bytes(obstore.get(self._store, path).bytes())
        except FileNotFoundError as cause:
            if _is_no_such_bucket(cause):
                raise self._no_bucket() from cause
            return None
        except BaseError as cause:
            raise self._external(path, cause) from cause

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Return ``length`` bytes from ``offset`` (fewer only at the end of the object)."""
        check_range(offset, length)
        path = self._path(key)
        if length == 0:  # no such range in HTTP
            return None if self._size(path) is None else b""
        try:
            return bytes(obstore.get_range(self._store, path, start=offset, length=length))
        except FileNotFoundError as cause:
            if _is_no_such_bucket(cause):
                raise self._no_bucket() from cause
            return None
        except BaseError as cause:
            # A range wholly past the end is an error in HTTP; ask for the size to recognise it.
            size = self._size(path)
            if size is not None and offset >= size:
                return b""
            raise self._external(path, cause) from cause

    def create(self, key: str, data: bytes) -> bool:
        """Create the object exclusively and durably; ``False`` if the key exists already."""
        path = self._path(key)
        self._check_writable()
        try:
            obstore.put(self._store, path, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError) as cause:
            if self._size(path) is None:
                # 409 from a store that saw another create or delete under way: nobody won yet.
                raise Determinate(f"{self._url(path)}: conflicting requests; repeat it") from cause
            return False
        except FileNotFoundError as cause:
            raise self._no_bucket() from cause
        except BaseError as cause:
            raise self._external(path, cause) from cause
        return True

    def delete(self, key: str) -> bool:
        """Delete the object; ``False`` where there was none."""
        path = self._path(key)
        self._check_writable()
        if self._size(path) is None:
            return False
        try:
            obstore.delete(self._store, path)
        except FileNotFoundError as cause:
            raise self._no_bucket() from cause
        except BaseError as cause:
            raise self._external(path, cause) from cause
        return True

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """List the objects whose key begins with ``prefix``, in key order."""
        check_prefix(prefix)
        return self._list(self._base + prefix)

    def local_path(self, key: str) -> Path | None:
        """Return ``None``: nothing here is a file."""
        check_key(key)
        return None

    def close(self) -> None:
        """Do nothing: obstore owns the connection pool."""

    def _list(self, wanted: str) -> Iterator[ObjectInfo]:
        # obstore takes whole path segments as prefix, so ask for the directory; and it starts
        # strictly after `offset`, so a proper prefix of ours, the longest it can parse as a path,
        # skips nothing wanted.
        directory, _, _ = wanted.rpartition("/")
        offset = wanted[:-1].rstrip("./")
        previous = ""
        try:
            for chunk in obstore.list(
                self._store, directory or None, offset=offset or None, chunk_size=LIST_CHUNK
            ):
                for found in chunk:
                    path = found["path"]
                    if path <= previous:
                        raise Determinate(
                            f"{self._url('')}: this store does not list in key order (an S3 "
                            "directory bucket?); use a general purpose bucket"
                        )
                    previous = path
                    if path.startswith(wanted):
                        yield ObjectInfo(path.removeprefix(self._base), found["size"])
                    elif path > wanted:
                        return
        except BaseError as cause:
            raise self._external(wanted, cause) from cause

    def _check_bucket(self) -> None:
        """Fail now, and clearly, for a bucket that is missing or closed to us."""
        next(self._list(self._base), None)

    def _size(self, path: str) -> int | None:
        try:
            return obstore.head(self._store, path)["size"]
        except FileNotFoundError:
            return None
        except BaseError as cause:
            raise self._external(path, cause) from cause

    def _path(self, key: str) -> str:
        check_key(key)
        return self._base + key

    def _url(self, path: str) -> str:
        return f"s3://{self._store.config.get('bucket', '')}/{path}"

    def _check_writable(self) -> None:
        if self._read_only:
            raise InvalidUsage(f"{self._url(self._base)} was opened read-only; open it for writing")

    def _no_bucket(self) -> Determinate:
        return Determinate(f"{self._url('')}: no such bucket; create it, or check the name")

    def _external(self, path: str, cause: BaseError) -> ExternalError:
        """Sort an error of the store by whether its effect may have happened."""
        if _is_no_such_bucket(cause):
            return self._no_bucket()
        if isinstance(cause, _REFUSED):
            return Determinate(
                f"{self._url(path)}: refused: {_first_line(cause)}; check AWS_ACCESS_KEY_ID, "
                "AWS_SECRET_ACCESS_KEY and what the bucket allows them"
            )
        return Indeterminate(f"{self._url(path)}: {_first_line(cause)}")


def _is_no_such_bucket(cause: Exception) -> bool:
    """Look for S3's error *code*, which obstore hands on only inside its text."""
    return "<Code>NoSuchBucket</Code>" in str(cause)


def _first_line(cause: Exception) -> str:
    """Drop obstore's "Debug source", which goes on for a page."""
    return str(cause).partition("\n")[0]
