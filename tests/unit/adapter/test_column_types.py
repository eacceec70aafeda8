"""A column that cannot be: refused where it stands, with what to write instead."""

from __future__ import annotations

import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.sql.parse import parse


@pytest.mark.parametrize(
    ("columns", "condition", "hint", "column"),
    [
        ("k xml", "FEATURE_NOT_SUPPORTED", "Use text", "k"),
        ("k int, j bigint[]", "FEATURE_NOT_SUPPORTED", "rows of a table of their own", "j"),
        ("k int, j json", "FEATURE_NOT_SUPPORTED", "Use jsonb", "j"),
        ("k int, s serial", "FEATURE_NOT_SUPPORTED", "", "s"),
        ("k int, m money2", "UNDEFINED_TYPE", None, "m"),
        ("k int, c char(3)", "FEATURE_NOT_SUPPORTED", "Use text", "c"),
        ("k int, j int DEFAULT 'x'", "INVALID_TEXT_REPRESENTATION", None, "j"),
        ('k int, j text, "k" date', "DUPLICATE_COLUMN", None, '"k"'),
    ],
)
def test_it_is_refused_where_it_stands(
    columns: str, condition: str, hint: str | None, column: str
) -> None:
    text = f"CREATE TABLE t ({columns})"
    with pytest.raises(AdapterError) as refused:
        parse(text)
    error = refused.value
    assert error.condition == condition
    assert (hint is None) == (error.hint is None)
    assert (hint or "") in (error.hint or "")
    assert error.position is not None
    assert text[error.position - 1 :].startswith(f"{column} ")
