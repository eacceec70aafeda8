"""The Python files of a project, imported so that what they declare is declared to us.

``from pyspark import pipelines as dp`` registers every element with the registry of the context in
which a file runs. Ours notes them; nothing is resolved and no Spark Connect server is needed. A
file is run as ``spark-pipelines`` runs it: with the name ``spark`` in it, in the project's folder.
"""

from __future__ import annotations

import importlib.util
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from pyspark.errors import PySparkException
from pyspark.pipelines import output as spark_output
from pyspark.pipelines.flow import AutoCdcFlow
from pyspark.pipelines.flow import Flow as SparkFlow
from pyspark.pipelines.graph_element_registry import (
    GraphElementRegistry,
    graph_element_registration_context,
)

from headwater.base.errors import HeadwaterError
from headwater.compute.declared import auto_cdc
from headwater.compute.declared.auto_cdc import Changes
from headwater.compute.declared.elements import Flow, MistakeInProject, Output, OutputKind, Where


class Registry(GraphElementRegistry):  # type: ignore[misc]  # pyspark is untyped to mypy
    """Notes what is declared, in order."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.outputs: list[Output] = []
        self.flows: list[Flow] = []
        self.changes: list[Changes] = []

    def register_output(self, output: Any) -> None:
        """Note an output."""
        self.outputs.append(
            Output(
                output.name,
                _kind(output),
                self.where(output.source_code_location),
                comment=output.comment,
                schema=getattr(output, "schema", None),
                format=getattr(output, "format", None),
                options=dict(getattr(output, "options", {})),
            )
        )

    def register_flow(self, flow: SparkFlow) -> None:
        """Note a flow."""
        where = self.where(flow.source_code_location)
        self.flows.append(Flow(flow.name, flow.target, flow.func, where, dict(flow.spark_conf)))

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        """Not called: such a flow is taken before pyspark makes one (``auto_cdc.py``)."""
        raise AssertionError(flow)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        """Not called: SQL files are read by ``pipelines/sql_file.py``."""
        raise AssertionError(f"{file_path}: {sql_text}")

    def where(self, location: Any) -> Where:
        """Return a place of pyspark's as the project's author knows it."""
        return Where(shown(Path(location.filename), self._root), location.line_number)


def _kind(output: Any) -> OutputKind:
    match output:
        case spark_output.MaterializedView():
            return "materialized view"
        case spark_output.TemporaryView():
            return "temporary view"
        case spark_output.Sink():
            return "sink"
        case _:
            return "streaming table"


def shown(file: Path, root: Path) -> str:
    """Return how a file of the project is called to its author."""
    return str(file.relative_to(root)) if file.is_relative_to(root) else str(file)


class _Anew(SourceFileLoader):
    """Compiles a file each time: by its date to the second and its size, an edit may not show."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def import_file(file: Path, root: Path, session: Any, registry: Registry) -> None:
    """Run a Python file of a project; what it declares is in the registry afterwards."""
    loader = _Anew(file.stem, str(file))
    made = importlib.util.spec_from_file_location(file.stem, str(file), loader=loader)
    assert made is not None, "it is a file of Python"
    module = importlib.util.module_from_spec(made)
    module.__dict__["spark"] = session
    with (
        authors_mistakes(Where(shown(file, root)), root),
        auto_cdc.taking(registry.changes.append, registry.where),
        graph_element_registration_context(registry),
    ):
        loader.exec_module(module)


@contextmanager
def inside(root: Path) -> Iterator[None]:
    """Be in the project's directory for a while, so that relative paths are its own."""
    before = Path.cwd()
    os.chdir(root)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def authors_mistakes(where: Where, root: Path) -> Iterator[None]:
    """Tell what the project's own code raises, by its file and line, in one sentence."""
    try:
        yield
    except MistakeInProject:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename).is_relative_to(root)]
        if isinstance(error, SyntaxError) and error.filename:
            where = Where(shown(Path(error.filename), root), error.lineno)
        elif own:
            where = Where(shown(Path(own[-1].filename), root), own[-1].lineno)
        raise MistakeInProject(where, said(error)) from error


def said(error: Exception) -> str:
    """Return an exception as one sentence.

    >>> said(KeyError("x"))
    "KeyError: 'x'"
    """
    if isinstance(error, HeadwaterError):
        return str(error)
    if isinstance(error, PySparkException):
        text = str(error.getMessage() or error)
    else:
        text = f"{type(error).__name__}: {error}"
    return (
        text.split("\n== SQL", 1)[0].split("\n\nJVM stacktrace", 1)[0].split(";\n'", 1)[0].strip()
    )
