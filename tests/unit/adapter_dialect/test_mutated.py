"""Queries of the corpora, put together wrongly: translated, or refused by a name of ours."""

from __future__ import annotations

import pytest

from headwater.adapter.dialect import to_spark
from headwater.adapter.errors import AdapterError
from headwater.testing.mutations import Mutator
from tests.seeds import seeds
from tests.unit.adapter_dialect.corpus import EXPRESSIONS
from tests.unit.adapter_dialect.query_corpus import QUERIES
from tests.unit.adapter_dialect.relations import RELATIONS

CORPUS = (
    *(f"SELECT {expression.lstrip('~')} FROM x" for expression in EXPRESSIONS),
    *(query.lstrip("~") for query in QUERIES * 2),
)
CASES = 5_000


@pytest.mark.parametrize("seed", seeds(1, 60))
def test_nothing_else_comes_out(seed: int) -> None:
    mutator = Mutator(CORPUS, seed)
    for number in range(CASES):
        text = mutator.text(number)
        try:
            to_spark(text, RELATIONS)
        except AdapterError:
            continue
        except Exception as error:
            raise AssertionError(f"case {number}: {text}") from error
