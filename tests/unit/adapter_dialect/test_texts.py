"""The whole corpus is taken; some of it, word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.adapter.dialect import to_spark
from headwater.adapter.dialect.aggregates import AGGREGATES
from headwater.adapter.dialect.casts import casts
from headwater.adapter.dialect.expressions import FUNCTIONS, NODES
from headwater.testing.datadriven import Directive, collect, run_file
from tests.queries.tables import queries, schemas
from tests.unit.adapter_dialect.corpus import EXPRESSIONS
from tests.unit.adapter_dialect.query_corpus import QUERIES
from tests.unit.adapter_dialect.relations import RELATIONS


def handle(directive: Directive) -> str:
    found = to_spark(directive.input, RELATIONS)
    types = ", ".join(f"{column.name}: {column.type.postgres}" for column in found.columns)
    return f"{found.text}\n-- {types}"


@pytest.mark.parametrize(
    "path", collect(Path(__file__).parent / "texts"), ids=lambda path: path.stem
)
def test_golden_texts(path: Path) -> None:
    run_file(path, handle)


def test_the_corpus_is_taken_and_uses_the_whole_list() -> None:
    written = [f"select {e} from x" for e in EXPRESSIONS]
    written += [q.lstrip("=") for q in QUERIES]
    for sql in written:
        to_spark(sql, RELATIONS)
    everything = " ".join(written).lower()
    unused = [name for name in (*FUNCTIONS, *AGGREGATES) if f"{name}(" not in everything]
    assert not unused, "allowed, and asked of no PostgreSQL"


def test_tpch_is_taken() -> None:
    relations = schemas("tpch")
    for text in queries("tpch").values():
        to_spark(text, relations)


def test_the_size_of_the_list_is_known() -> None:
    """Whoever adds to the allow-list adds to the corpus, and then changes this line."""
    sizes = (len(NODES), len(FUNCTIONS), len(AGGREGATES), len(casts()))
    assert sizes == (53, 48, 21, 59)
