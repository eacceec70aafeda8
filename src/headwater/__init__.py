"""Headwater: SQL views over changing data, kept exactly right, incrementally, on Apache Spark.

    import headwater
    db = headwater.open("data")

Importing the package costs nothing: what ``open`` needs is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.api import Answer as Answer
    from headwater.api import Change as Change
    from headwater.api import Database as Database
    from headwater.api import Progress as Progress
    from headwater.api import Relation as Relation
    from headwater.api import Subscription as Subscription
    from headwater.api import open as open  # noqa: A004 - as a user calls it

__version__ = "0.1.0.dev0"

_API = frozenset({"Answer", "Change", "Database", "Progress", "Relation", "Subscription", "open"})


def __getattr__(name: str) -> Any:
    if name in _API:
        from headwater import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_API})
