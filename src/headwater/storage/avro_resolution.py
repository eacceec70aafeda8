"""Whether what was written with one Avro schema can be read as another; if not, which column.

    mismatch(writer, reader)  ->  None, or the column and the reason

The rules are those of Avro's specification ("Schema Resolution"): a column that the writer lacks
takes the reader's default, one that the reader lacks is passed over, numbers are promoted, unions
are resolved branch by branch, names may be aliases. To these comes ours: a logical type is the
meaning of a value, so what was written as one cannot be read as another, nor as the bare number.

Judged once for each pair of schemas, before any record is read: what cannot be resolved is true of
every record of the writer. What depends on the value (a union with a branch that the reader
lacks, a symbol that it does not know) is a mistake of that record alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headwater.storage.avro_columns import Parsed, branches, kind, logical

_PROMOTED: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
_SAME_MEANING: Final = {
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "local timestamp",
    "local-timestamp-micros": "local timestamp",
    "time-millis": "time",
    "time-micros": "time",
}
_NAMED: Final = ("record", "error", "enum", "fixed")


class Mismatch(NamedTuple):
    """Where the schemas part, and how."""

    column: str
    why: str


def mismatch(writer: Parsed, reader: Parsed) -> Mismatch | None:
    """Return the first column that cannot be read; ``None`` if all can."""
    return _Resolving(writer, reader).unresolved(writer.schema, reader.schema, "")


class _Resolving:
    """One comparison; types that contain themselves are looked at once."""

    def __init__(self, writer: Parsed, reader: Parsed) -> None:
        self._writer = writer
        self._reader = reader
        self._judged: dict[tuple[str, str], Mismatch | None] = {}

    def unresolved(self, writer: Any, reader: Any, path: str) -> Mismatch | None:
        writer, reader = self._writer.of(writer), self._reader.of(reader)
        first: Mismatch | None = None
        for written in branches(writer):
            for wanted in branches(reader):
                found = self._one(self._writer.of(written), self._reader.of(wanted), path)
                if found is None:
                    return None
                first = first or found
        return first or Mismatch(path, "a union without branches")

    def _one(self, writer: Any, reader: Any, path: str) -> Mismatch | None:
        was, wanted = kind(writer), kind(reader)
        meant, wanted_meaning = logical(writer), logical(reader)
        if _SAME_MEANING.get(meant, meant) != _SAME_MEANING.get(wanted_meaning, wanted_meaning):
            return Mismatch(path, f"{meant or was} cannot be read as {wanted_meaning or wanted}")
        if meant == "decimal" and writer.get("scale", 0) != reader.get("scale", 0):
            scales = f"{writer.get('scale', 0)} cannot be read with scale {reader.get('scale', 0)}"
            return Mismatch(path, f"decimal of scale {scales}")
        if was != wanted:
            if wanted in _PROMOTED.get(was, ()):
                return None
            return Mismatch(path, f"{was} cannot be read as {wanted}")
        if was in _NAMED and not _same_name(writer, reader):
            return Mismatch(path, f"{was} {writer['name']!r} is not {reader['name']!r}")
        match was:
            case "record" | "error":
                return self._record(writer, reader, path)
            case "array":
                return self.unresolved(writer["items"], reader["items"], path)
            case "map":
                return self.unresolved(writer["values"], reader["values"], path)
            case "fixed" if writer["size"] != reader["size"]:
                sizes = f"{writer['size']} bytes cannot be read as {reader['size']}"
                return Mismatch(path, f"fixed of {sizes}")
            case _:
                return None

    def _record(self, writer: Any, reader: Any, path: str) -> Mismatch | None:
        pair = (writer["name"], reader["name"])
        if pair not in self._judged:
            self._judged[pair] = None  # Of a type inside of itself, until it is known.
            self._judged[pair] = self._fields(writer, reader, path)
        return self._judged[pair]

    def _fields(self, writer: Any, reader: Any, path: str) -> Mismatch | None:
        written = {each["name"]: each for each in writer["fields"]}
        for each in reader["fields"]:
            names = (each["name"], *each.get("aliases", ()))
            place = f"{path}.{each['name']}" if path else each["name"]
            found = next((written[name] for name in names if name in written), None)
            if found is None:
                if "default" not in each:
                    return Mismatch(place, "it was not written, and has no default")
                continue
            wrong = self.unresolved(found["type"], each["type"], place)
            if wrong is not None:
                return wrong
        return None


def _same_name(writer: Any, reader: Any) -> bool:
    names = {_alone(each) for each in (reader["name"], *reader.get("aliases", ()))}
    return _alone(writer["name"]) in names


def _alone(name: str) -> str:
    return name.rpartition(".")[2]
