"""Where a PostgreSQL of a test keeps its files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def shadow_directory() -> Iterator[Path]:
    """Have a directory that the server's user may enter, also if the tests run as root."""
    with tempfile.TemporaryDirectory(prefix="headwater-") as name:
        Path(name).chmod(0o755)
        yield Path(name) / "shadow"
