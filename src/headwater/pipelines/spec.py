"""The specification of a pipeline: ``spark-pipeline.yml``, as ``spark-pipelines`` reads it.

    name: sales                          required
    storage: file:///data/sales          required; where we keep everything, in its folder headwater
    catalog: spark_catalog               what relations may be qualified by
    database: default                    (or schema:)
    configuration: {my.setting: "1"}     settings of Spark, texts
    libraries:
      - glob: {include: transformations/**}

Whatever is wrong with it is told with the file, the key and the remedy.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import yaml

from headwater.base.errors import InvalidUsage

FILE_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
DIRECTORY: Final = "headwater"
"""Where the location is, in the storage of a pipeline: Spark's own files stay apart."""

_KEYS: Final = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
_SUFFIXES: Final = (".py", ".sql")


class InvalidSpec(InvalidUsage):
    """A specification that cannot be used: where, and what to do."""

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(f"{file}: {why}")


@dataclass(frozen=True, slots=True)
class Spec:
    """A specification, checked."""

    file: Path
    name: str
    storage: str
    catalog: str | None
    database: str | None
    configuration: Mapping[str, str]
    globs: tuple[str, ...]

    @property
    def root(self) -> Path:
        """The directory of the project."""
        return self.file.parent

    def location(self) -> Path:
        """Return the directory of the location that the storage names."""
        parts = urlsplit(self.storage)
        if parts.scheme not in ("", "file"):
            raise InvalidSpec(
                self.file,
                f"storage is {self.storage}, which is no local directory; give --data DIR, or "
                f"--blob and --consensus",
            )
        given = Path(unquote(parts.path)) if parts.scheme else Path(self.storage)
        return (self.root / given / DIRECTORY).resolve()

    def files(self) -> tuple[Path, ...]:
        """Return the files of definitions, in the order of their names."""
        found: dict[Path, None] = {}
        for pattern in self.globs:
            matched = sorted(
                path
                for path in self.root.glob(pattern)
                if path.is_file() and "__pycache__" not in path.parts
            )
            if not matched:
                raise InvalidSpec(
                    self.file,
                    f"libraries: no file matches {shown_glob(pattern)!r} in {self.root}; check the "
                    f"path, which is relative to the specification",
                )
            for path in matched:
                if path.suffix not in _SUFFIXES:
                    raise InvalidSpec(
                        self.file,
                        f"libraries: {path.relative_to(self.root)} is neither .py nor .sql; move "
                        f"it out of {shown_glob(pattern)!r}",
                    )
                found[path] = None
        return tuple(found)


def shown_glob(pattern: str) -> str:
    """Return a pattern as it stands in the file."""
    return pattern.removesuffix("/*") if pattern.endswith("/**/*") else pattern


def find(directory: Path) -> Path:
    """Return the specification of this directory, or of the nearest one above it that has one."""
    for place in (directory, *directory.parents):
        found = [place / name for name in FILE_NAMES if (place / name).is_file()]
        if len(found) > 1:
            raise InvalidUsage(
                f"{place} has both {' and '.join(FILE_NAMES)}; say which one with --spec"
            )
        if found:
            return found[0]
    raise InvalidUsage(
        f"there is no {FILE_NAMES[0]} in {directory} or above it; name one with --spec, or make a "
        f"project with `spark-pipelines init --name NAME`"
    )


def load(file: Path) -> Spec:
    """Read a specification."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidUsage(f"{file} cannot be read: {reason}; check --spec") from None
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise InvalidSpec(file, f"{line}this is no YAML: {problem}") from None
    return checked(file.resolve(), given)


def checked(file: Path, given: Any) -> Spec:
    """Return what a specification says, or what is wrong with it."""
    if not isinstance(given, dict):
        raise InvalidSpec(file, "it is not a mapping; write `name:` and `storage:`, see the docs")
    for key in given:
        if key not in _KEYS:
            near = get_close_matches(str(key), _KEYS, n=1)
            hint = f"; perhaps {near[0]}" if near else f"; there are {', '.join(_KEYS)}"
            raise InvalidSpec(file, f"there is no key {key!r}{hint}")
    if given.get("database") is not None and given.get("schema") is not None:
        raise InvalidSpec(file, "database and schema are the same key; give one of them")
    return Spec(
        file,
        _text(file, given, "name", required=True) or "",
        _text(file, given, "storage", required=True) or "",
        _text(file, given, "catalog"),
        _text(file, given, "database") or _text(file, given, "schema"),
        _configuration(file, given.get("configuration")),
        _globs(file, given.get("libraries")),
    )


def _text(file: Path, given: Mapping[str, Any], key: str, *, required: bool = False) -> str | None:
    value = given.get(key)
    if value is None and not required:
        return None
    if not isinstance(value, str) or not value:
        told = "is missing" if value is None else f"is {value!r}, not a text"
        raise InvalidSpec(file, f"the key {key} {told}; write `{key}: …`")
    return value


def _configuration(file: Path, given: Any) -> Mapping[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise InvalidSpec(file, 'configuration is not a mapping; write `key: "value"` lines')
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidSpec(
                file,
                f"configuration: {key} is {value!r}, not a text; write it in quotes: "
                f'{key}: "{value}"',
            )
    return given


def _globs(file: Path, given: Any) -> tuple[str, ...]:
    if given is None:
        given = []
    if not isinstance(given, list):
        raise InvalidSpec(file, "libraries is not a list; write `- glob: {include: folder/**}`")
    found = []
    for number, entry in enumerate(given, 1):
        match entry:
            case {"glob": {"include": str(pattern)}} if pattern:
                found.append(_pattern(file, pattern))
            case _:
                raise InvalidSpec(
                    file,
                    f"libraries: entry {number} is {entry!r}; write `- glob: "
                    f"{{include: folder/**}}`",
                )
    if not found:
        raise InvalidSpec(
            file, "libraries names no files; write `libraries: [{glob: {include: folder/**}}]`"
        )
    return tuple(found)


def _pattern(file: Path, pattern: str) -> str:
    if Path(pattern).is_absolute():
        raise InvalidSpec(
            file, f"libraries: {pattern} is absolute; write it relative to the specification"
        )
    if not glob.has_magic(pattern):
        return pattern
    if pattern.endswith("/**") and not glob.has_magic(pattern.removesuffix("/**")):
        return f"{pattern}/*"
    raise InvalidSpec(
        file, f"libraries: {pattern} is neither a file nor `folder/**`, the only forms there are"
    )
