"""Plans that are known: the same question only."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.compute import known_plans
from headwater.compute.ir.refusal import Refused

LONG, TEXT = (pa.schema([pa.field("k", type_)]) for type_ in (pa.int64(), pa.string()))


def test_only_the_same_question_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_plans, "_known", type(known_plans._known)())
    monkeypatch.setattr(known_plans, "PLANS_MAX", 2)
    made: list[Any] = []

    def ask(text: str, **schemas: pa.Schema) -> Any:
        def compiled() -> Any:
            made.append(object())
            return made[-1]

        return known_plans.known_or(text, schemas, compiled)

    first = ask("SELECT k FROM t", t=LONG)
    assert ask("SELECT k FROM t", t=LONG) is first
    # Other columns, another text; and of three the one that nobody asked for longest is forgotten.
    assert ask("SELECT k FROM t", t=TEXT) is not first
    assert ask("SELECT k FROM t", t=LONG) is first
    assert ask("SELECT k  FROM t", t=LONG) is not first
    assert ask("SELECT k FROM t", t=LONG) is first
    assert len(made) == 3
    ask("SELECT k FROM t", t=TEXT)
    assert len(made) == 4


def test_what_cannot_be_compiled_is_asked_again() -> None:
    def refused() -> Any:
        raise Refused("rand()", "it is not deterministic")

    for _ in range(2):
        with pytest.raises(Refused):
            known_plans.known_or("SELECT rand()", {}, refused)
