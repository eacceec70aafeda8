"""A message of Google's library made of one of ours, by the names of the fields alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Container
from typing import Any


def fill(theirs: Any, ours: Any, maps: Container[str], ours_alone: Container[str] = ()) -> None:
    """Set the fields of their message; some are maps, and some are none of theirs."""
    theirs.SetInParent()
    for field in dataclasses.fields(ours):
        value = getattr(ours, field.name)
        if field.name == "unknown":
            theirs.MergeFromString(value)
        elif field.name in ours_alone or value is None:
            continue
        elif field.name in maps:
            for key, item in value:
                if dataclasses.is_dataclass(item):
                    fill(getattr(theirs, field.name)[key], item, maps, ours_alone)
                else:
                    getattr(theirs, field.name)[key] = item
        elif isinstance(value, tuple):
            for item in value:
                if dataclasses.is_dataclass(item):
                    fill(getattr(theirs, field.name).add(), item, maps, ours_alone)
                else:
                    getattr(theirs, field.name).append(item)
        elif dataclasses.is_dataclass(value):
            fill(getattr(theirs, field.name), value, maps, ours_alone)
        else:
            setattr(theirs, field.name, value)
