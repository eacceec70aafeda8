"""Objects in this process's memory: the reference implementation of ``Blob``.

One lock makes every method atomic, hence linearizable. It may be shared by several "processes"
of a test: ``close`` therefore forgets nothing. Durable for as long as the object lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Lock

from headwater.persist.blob.key import check_key, check_prefix, check_range
from headwater.persist.location import ObjectInfo


class MemoryBlob:
    """A map from keys to bytes."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._lock = Lock()

    def get(self, key: str) -> bytes | None:
        """Return the whole object, or ``None`` where there is none."""
        check_key(key)
        with self._lock:
            return self._objects.get(key)

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Return ``length`` bytes from ``offset`` (fewer only at the end of the object)."""
        check_range(offset, length)
        content = self.get(key)
        return None if content is None else content[offset : offset + length]

    def create(self, key: str, data: bytes) -> bool:
        """Create the object exclusively; ``False`` if the key exists already."""
        check_key(key)
        content = bytes(data)  # the caller may reuse a mutable buffer; objects never change
        with self._lock:
            if key in self._objects:
                return False
            self._objects[key] = content
            return True

    def delete(self, key: str) -> bool:
        """Delete the object; ``False`` where there was none."""
        check_key(key)
        with self._lock:
            return self._objects.pop(key, None) is not None

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """List the objects as they were at this call, in key order."""
        check_prefix(prefix)
        with self._lock:
            found = [
                ObjectInfo(k, len(v)) for k, v in self._objects.items() if k.startswith(prefix)
            ]
        found.sort(key=lambda info: info.key)
        return iter(found)

    def local_path(self, key: str) -> Path | None:
        """Return ``None``: nothing here is a file."""
        check_key(key)
        return None

    def close(self) -> None:
        """Do nothing: somebody else may share this memory."""
