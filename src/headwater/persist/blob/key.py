"""What a key is, in one place for every implementation of ``Blob``.

A key is one or more components joined by ``/``. A component is one or more of ``[a-z0-9._-]``
and is neither ``.`` nor ``..``. Lower case only, because some file systems fold case; bounded,
because file names (255) and S3 keys (1024, less the prefix of the location) are.

A *prefix*, as ``list`` takes it, is any string some key could begin with.

Kept by: :func:`check_key` and :func:`check_prefix`, called first in every method of every
implementation. Relied on by: ``FileBlob`` (no key leaves its root, none names a temporary file)
and ``S3Blob`` (no key needs quoting).
"""

from __future__ import annotations

import re
from typing import Final

from headwater.base.errors import InvalidUsage

KEY_CHARS_MAX: Final = 800
COMPONENT_CHARS_MAX: Final = 255

_KEY: Final = re.compile(r"[a-z0-9._-]+(?:/[a-z0-9._-]+)*\Z")
_NAME_START: Final = re.compile(r"[a-z0-9._-]*\Z")
_NOT_NAMES: Final = frozenset({".", ".."})


def check_key(key: str) -> None:
    """Raise :class:`InvalidUsage` unless ``key`` is a key."""
    if (
        _KEY.match(key) is None
        or len(key) > KEY_CHARS_MAX
        or any(c in _NOT_NAMES or len(c) > COMPONENT_CHARS_MAX for c in key.split("/"))
    ):
        raise InvalidUsage(
            f"{key!r} is not a blob key: use components of [a-z0-9._-] joined by '/', none of "
            f"them '.', '..', empty or over {COMPONENT_CHARS_MAX} characters, "
            f"and at most {KEY_CHARS_MAX} characters in all"
        )


def check_prefix(prefix: str) -> None:
    """Raise :class:`InvalidUsage` unless some key could begin with ``prefix``."""
    directory, slash, name_start = prefix.rpartition("/")
    if slash:
        check_key(directory)
    if _NAME_START.match(name_start) is None:
        raise InvalidUsage(f"{prefix!r} is not a prefix of blob keys: use [a-z0-9._/-]")


def check_range(offset: int, length: int) -> None:
    """Raise :class:`InvalidUsage` unless both are natural numbers."""
    if offset < 0 or length < 0:
        raise InvalidUsage(f"a range has no negative offset or length: {offset}, {length}")
