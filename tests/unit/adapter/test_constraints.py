"""What a table cannot be told: refused, with what to do instead."""

from __future__ import annotations

import pytest

from headwater.adapter.errors import Unsupported
from headwater.adapter.sql.parse import parse
from headwater.adapter.sql.statements import CreateTable


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("CREATE TABLE t (a int CHECK (a > 0))", "let a view select"),
        ("CREATE TABLE t (a int, CHECK (a > 0))", "let a view select"),
        ("CREATE TABLE t (a int, CONSTRAINT c CHECK (a > 0))", "let a view select"),
        ("CREATE TABLE t (a int UNIQUE)", "PRIMARY KEY"),
        ("CREATE TABLE t (a int, UNIQUE (a))", "PRIMARY KEY"),
        ("CREATE TABLE t (a int REFERENCES u (b))", "Leave it out"),
        ("CREATE TABLE t (a int, FOREIGN KEY (a) REFERENCES u (b))", "Leave it out"),
        ("CREATE TABLE t (a int GENERATED ALWAYS AS IDENTITY)", "gen_random_uuid"),
        ("CREATE TABLE t (a bigserial)", "gen_random_uuid"),
        ("ALTER TABLE t ADD COLUMN a int", "Make another table"),
        ("ALTER TABLE t RENAME COLUMN a TO b", "Make another table"),
    ],
)
def test_refused_with_what_to_do(text: str, hint: str) -> None:
    with pytest.raises(Unsupported) as refused:
        parse(text)
    assert refused.value.hint is not None
    assert hint in refused.value.hint


def test_a_primary_key_may_have_a_name() -> None:
    (create,) = parse("CREATE TABLE t (a int, b int, CONSTRAINT t_pkey PRIMARY KEY (b, a))")
    assert isinstance(create, CreateTable)
    assert create.key == ("b", "a")
