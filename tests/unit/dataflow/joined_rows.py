"""Inputs of joins in tests, and when SQL has two values for equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.compute.dataflow.graph import Scanned
from headwater.compute.ir.expression import Column, Field


def scanned(relation: str, types: Mapping[str, str]) -> Scanned:
    """Return a relation with these columns; their names end in a number of two characters."""
    fields = tuple(Field(name[:-2], Column(name, type_, True)) for name, type_ in types.items())
    return Scanned(relation, fields)


def sql_equal(a: Any, b: Any, null_safe: bool) -> bool:
    if a is None or b is None:
        return null_safe and a is None and b is None
    return bool(a == b or (a != a and b != b))
