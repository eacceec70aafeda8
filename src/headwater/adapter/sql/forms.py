"""Columns whose type is a canonical text to Arrow and Spark: ``uuid`` and ``jsonb``.

Equal values have equal texts, so storing, comparing, grouping and keys are those of text
(``collection/types.py``); what is different is how a value comes in (:func:`canonical`) and what
the column is called (:func:`name_of`). Which of them a column is, its field's metadata says
(``collection/schema.py``).
"""

from __future__ import annotations

from typing import Any, Final, Literal, cast

import pyarrow as pa
from sqlglot import exp

from headwater.adapter.errors import InvalidText
from headwater.adapter.sql.text import uuid_from_text
from headwater.adapter.sql.types import wire_type
from headwater.collection.meaning import NotJson, canonical_json
from headwater.collection.schema import Column, arrow_schema, type_of
from headwater.collection.type_table import TEXT_FORMS
from headwater.collection.types import UnsupportedType, scalar

Form = Literal["uuid", "jsonb"]

_T: Final = exp.DataType.Type
_WRITTEN: Final[dict[Any, Form]] = {_T.UUID: "uuid", _T.JSONB: "jsonb"}


def form_of(field: pa.Field) -> Form | None:
    """Which of them a column is, if any."""
    try:
        name = type_of(field).name
    except UnsupportedType:
        return None
    return cast("Form", name) if name in TEXT_FORMS else None


def written_form(written: Any) -> Form | None:
    """Which of them a sqlglot ``DataType`` names, if any."""
    return _WRITTEN.get(written.this)


def canonical(text: str, form: Form) -> str:
    """The one text of a value, as the type's input function reads it.

    >>> canonical("{A0EEBC999C0B4EF8BB6D6BB9BD380A11}", "uuid")
    'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'
    >>> canonical('{"b":1.0,"a":2}', "jsonb")
    '{"a": 2, "b": 1}'
    """
    if form == "uuid":
        return uuid_from_text(text)
    try:
        return canonical_json(text)
    except NotJson:
        raise InvalidText("json", text) from None


def field_of(name: str, type_: pa.DataType, nullable: bool, form: Form | None) -> pa.Field:
    """The field of a column."""
    if form is None:
        return pa.field(name, type_, nullable)
    return arrow_schema([Column(name, scalar(form), nullable)]).field(0)


def name_of(field: pa.Field) -> str:
    """PostgreSQL's name of a column's type."""
    return form_of(field) or wire_type(field.type).name
