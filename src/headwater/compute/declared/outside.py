"""What a query reads that is no relation of ours: files, and whatever else Spark can read.

A leaf of Catalyst's plan becomes an :class:`Outside` with a name of its own, by which the plan
knows it. The name is made of what is read (format, paths, options, columns), so the same reading
has the same name in every run and in every query.

    files         ``spark.read.csv(…)``: what the files hold now
    file stream   ``spark.readStream.csv(…)``: each file once, when it is first seen
    other         a table of another catalog, JDBC, …: what it holds now

Rows of ``spark.range`` and of ``createDataFrame`` are no outside: they are part of the query.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headwater.compute.catalyst.jvm import java_object
from headwater.compute.ir.refusal import Refused
from headwater.compute.select import spark_message
from headwater.persist.spark import frame_rows

_CLASSES: Final = ("Refusal", "Call", "Printer", "Outside")

Kind = Literal["files", "file stream", "other"]

_KINDS: Final[Mapping[str, Kind]] = {"files": "files", "file stream": "file stream"}

NAME_CHARACTERS_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was when it was looked at; another time or length is another content."""

    path: str
    changed_ms: int
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Outside:
    """Something outside, as one query reads it."""

    name: str
    kind: Kind
    says: Mapping[str, str]
    """What is read, for people and for :func:`name_of`."""
    frame: DataFrame

    def files(self) -> tuple[File, ...] | None:
        """Return the files there are now; None if it is not files."""
        if self.kind == "other":
            return None
        read = self._all_files() if self.kind == "file stream" else self.frame
        helper = java_object(read.sparkSession, _CLASSES)
        leaf = read._jdf.queryExecution().analyzed()
        lines = (line.split("\t") for line in helper.files(leaf))
        found = (File(path, int(changed), int(length)) for path, changed, length in lines)
        return tuple(sorted(found, key=lambda file: file.path))

    def rows_of(self, files: Collection[File]) -> DataFrame:
        """Return the rows of these files of a stream, as a batch."""
        assert self.kind == "file stream"
        reader = self._reader().option("basePath", self.says["option path"])
        return reader.load([file.path for file in files])

    def rows(self) -> DataFrame:
        """Return what it holds now."""
        return self.frame

    def _all_files(self) -> DataFrame:
        return self._reader().load(self.says["option path"])

    def _reader(self) -> Any:
        session = self.frame.sparkSession
        options = {
            key.removeprefix("option "): value
            for key, value in self.says.items()
            if key.startswith("option ") and key != "option path"
        }
        reader = session.read.format(self.says["format"]).schema(self.frame.schema)
        return reader.options(**options)


def found_in(
    frame: DataFrame, relations: Mapping[str, str], root: Path
) -> list[tuple[Any, Outside]]:
    """Return the leaves of a query that are outside, each with what it is.

    ``root`` is where relative paths begin.
    """
    session = frame.sparkSession
    helper = java_object(session, _CLASSES)
    found = []
    for leaf in helper.leaves(frame._jdf, dict(relations)):
        says = {str(key): str(value) for key, value in dict(helper.described(leaf)).items()}
        if says["kind"] == "stream" or "StreamingRelationV2" in says["kind"]:
            raise Refused(
                f"readStream.format({says.get('format', '?')!r})",
                "files, Kafka, rate and relations of Headwater are read as streams, nothing else",
                hint="make it a source with CREATE SOURCE and read that by its name",
            )
        path = says.get("option path")
        if path is not None and not urlsplit(path).scheme:
            says["option path"] = (root / path).as_uri()
        kind = _KINDS.get(says["kind"], "other")
        rows = DataFrame(helper.frame(session._jsparkSession, leaf), session)
        says["columns"] = rows.schema.simpleString()
        if kind == "other":
            says["plan"] = str(leaf.simpleString(1000))
        found.append((leaf, Outside(name_of(says), kind, says, rows)))
    return found


def name_of(says: Mapping[str, str]) -> str:
    """Return the name of a reading: what it is about, and a digest of all that is said.

    >>> name_of({"path 0": "file:/data/Orders 2026.csv", "format": "csv"})
    'input_orders_2026_csv_a5a58d'
    """
    paths = [says[key] for key in ("path 0", "option path") if key in says]
    about = PurePath(unquote(urlsplit(paths[0]).path)).name if paths else says.get("kind", "")
    plain = re.sub(r"[^a-z0-9]+", "_", about.lower()).strip("_")[:NAME_CHARACTERS_MAX]
    # Attributes of a plan are numbered anew by every run.
    stable = {key: re.sub(r"#\d+L?", "", value) for key, value in says.items()}
    digest = sha256(msgspec.json.encode(stable, order="deterministic")).hexdigest()[:6]
    return f"input_{plain}_{digest}"


def rows_of(frame: DataFrame) -> pa.Table:
    """Run a query over what is outside, and return its rows here."""
    try:
        return frame_rows(frame)
    except PySparkException as error:
        raise Refused(
            "reading from outside", spark_message(error), hint="check the files and the format"
        ) from error
