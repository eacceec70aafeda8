"""spark-pipeline.yml: what is taken, and each mistake in one sentence with file, key and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.base.errors import InvalidUsage
from headwater.pipelines import spec

GOOD = """
name: sales
storage: file:///data/sales%20x
catalog: spark_catalog
schema: shop
configuration: {my.setting: "1"}
libraries:
  - glob: {include: transformations/**}
  - glob: {include: more.sql}
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "spark-pipeline.yml"
    file.write_text(text)
    return file


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    found = spec.load(written(tmp_path, GOOD))
    assert (found.name, found.catalog, found.database) == ("sales", "spark_catalog", "shop")
    assert found.configuration == {"my.setting": "1"}
    assert found.location() == Path("/data/sales x/headwater")
    (tmp_path / "transformations" / "deep" / "__pycache__").mkdir(parents=True)
    for name in ("transformations/b.py", "transformations/deep/a.sql", "more.sql"):
        (tmp_path / name).touch()
    (tmp_path / "transformations/deep/__pycache__/b.pyc").touch()
    names = [file.relative_to(tmp_path.resolve()).as_posix() for file in found.files()]
    assert names == ["transformations/b.py", "transformations/deep/a.sql", "more.sql"]


def test_storage_is_relative_to_the_file(tmp_path: Path) -> None:
    text = "name: a\nstorage: kept\nlibraries: [{glob: {include: x.py}}]"
    found = spec.load(written(tmp_path, text))
    assert found.location() == tmp_path.resolve() / "kept" / "headwater"


_LIBRARIES = "\nlibraries: [{glob: {include: x.py}}]"
MISTAKES = [
    ("name: a", "the key storage is missing"),
    ("storage: b", "the key name is missing"),
    ("name: 3\nstorage: b", "the key name is 3, not a text"),
    ("- name", "not a mapping"),
    ("", "not a mapping"),
    ("name: [a", "line 1: this is no YAML"),
    ("name: a\nstorage: b\nlibrary: x", "no key 'library'; perhaps libraries"),
    ("name: a\nstorage: b\ndatabase: c\nschema: c", "database and schema are the same key"),
    ("name: a\nstorage: b\nconfiguration: {k: 1}" + _LIBRARIES, 'in quotes: k: "1"'),
    ("name: a\nstorage: b\nconfiguration: [k]" + _LIBRARIES, "configuration is not a mapping"),
    ("name: a\nstorage: b", "libraries names no files"),
    ("name: a\nstorage: b\nlibraries: {}", "libraries is not a list"),
    ("name: a\nstorage: b\nlibraries: [x.py]", "entry 1 is 'x.py'"),
    ("name: a\nstorage: b\nlibraries: [{glob: {include: 'a/*.py'}}]", "neither a file nor"),
    ("name: a\nstorage: b\nlibraries: [{glob: {include: /a.py}}]", "is absolute"),
]


@pytest.mark.parametrize(("text", "told"), MISTAKES)
def test_a_mistake_is_told_with_the_file(tmp_path: Path, text: str, told: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(InvalidUsage) as raised:
        spec.load(file)
    assert told in str(raised.value)
    assert str(raised.value).startswith(str(file))


def test_files_that_are_not_there_or_no_definitions(tmp_path: Path) -> None:
    text = "name: a\nstorage: s3://b\nlibraries: [{glob: {include: t/**}}]"
    found = spec.load(written(tmp_path, text))
    with pytest.raises(InvalidUsage, match=r"no file matches 't/\*\*'"):
        found.files()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "notes.txt").touch()
    with pytest.raises(InvalidUsage, match=r"notes.txt is neither .py nor .sql"):
        found.files()
    with pytest.raises(InvalidUsage, match="no local directory; give --data"):
        found.location()


def test_the_nearest_file_is_found(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    file = written(tmp_path, GOOD)
    assert spec.find(deep) == file
    (tmp_path / "spark-pipeline.yaml").touch()
    with pytest.raises(InvalidUsage, match="say which one with --spec"):
        spec.find(deep)
    with pytest.raises(InvalidUsage, match="cannot be read"):
        spec.load(tmp_path / "absent.yml")
