"""Spans tell what ran and nothing of what was in it; without a collector nothing is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from opentelemetry.trace import NoOpTracerProvider

from headwater.adapter.errors import AdapterError
from headwater.base import tracing
from headwater.server import otel
from headwater.server.preflight import CannotStart
from headwater.testing.sql_server import SqlServer


class Notebook:
    """Writes spans down, with how they ended."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, tracing.Attribute], str]] = []

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, tracing.Attribute]) -> Iterator[None]:
        ended = "well"
        try:
            yield
        except BaseException as error:
            ended = type(error).__name__
            raise
        finally:
            self.told.append((name, dict(attributes), ended))


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    made = Notebook()
    tracing.collect(made)
    yield made
    tracing.collect(None)


def test_statements_are_told_without_their_text(notebook: Notebook) -> None:
    with SqlServer() as server:
        sql = server.session()
        sql("CREATE TABLE t (k bigint); INSERT INTO t VALUES (4711)")
        with pytest.raises(AdapterError):
            sql("SELECT secret FROM nowhere")
    kinds = [("CreateTable", "well"), ("Insert", "well"), ("Select", "UnknownRelation")]
    assert notebook.told == [("statement", {"kind": kind}, ended) for kind, ended in kinds]


def test_open_telemetry_takes_them() -> None:
    sent = otel.OpenTelemetry(NoOpTracerProvider())
    with sent.span("statement", {"kind": "Select"}):
        pass
    with pytest.raises(ValueError, match="seen"), sent.span("statement", {}):
        raise ValueError("seen")


def test_one_sentence_if_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(otel, "import_module", absent)
    with pytest.raises(CannotStart, match=r"pip install 'headwater\[otel\]'"):
        otel.opened()
