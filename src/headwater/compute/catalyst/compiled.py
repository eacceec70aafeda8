"""What our Java sources were compiled to, kept in a file from which the next JVM takes it.

A JVM that has just started needs 2 to 4 s of CPU to compile them, which a server's first view or
step waits for, and a tenth of that to load what was compiled before. A file is good for the very
sources, one Java and one class path, all of which are in its name; one that cannot be read is made
anew, and where none can be written they are compiled at every start. It decides nothing but the
time of a start.

It lies beside the archive of Spark's own classes (``class_archive.py``).

Kept by: ``tests/unit/compute/test_compiled.py``, ``tests/spark/test_java_classes.py``. Relied on
by: ``jvm.py``.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from headwater.base.decoding import from_msgpack
from headwater.compute import class_archive

_MARK_BYTES: Final = 32
"""A file begins with the SHA-256 of what follows."""


def file_of(sources: Mapping[str, str], java: str, class_path: str) -> Path:
    """Return where it is kept what these sources, by the names of their classes, are here."""
    mark = hashlib.sha256()
    for part in (java, class_path, *(text for named in sources.items() for text in named)):
        mark.update(part.encode() + b"\0")
    return class_archive.directory() / f"java-{list(sources)[-1]}-{mark.hexdigest()[:16]}.classes"


def read(file: Path) -> dict[str, bytes] | None:
    """Return the classes of a file by their names; ``None``: there is none, or no whole one."""
    try:
        found = file.read_bytes()
    except OSError:
        return None
    mark, data = found[:_MARK_BYTES], found[_MARK_BYTES:]
    if hashlib.sha256(data).digest() != mark:
        return None
    return from_msgpack(data, dict[str, bytes])


def keep(file: Path, code: Mapping[str, bytes]) -> None:
    """Keep classes in a file, if that can be."""
    data = msgspec.msgpack.encode(code)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        # Under its name it is whole: others may start at the same time.
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as beside:
            beside.write(hashlib.sha256(data).digest() + data)
        Path(beside.name).replace(file)
