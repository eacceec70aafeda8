"""What was compiled is taken from its file if it is whole, and of the very sources and Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.compute.catalyst import compiled

CODE = {"headwater.A": bytes(range(256)) * 40, "headwater.A$B": b"b", "headwater.C": b""}
SOURCES = {"A": "class A {}", "C": "class C {}"}


def test_what_was_kept_is_read(tmp_path: Path) -> None:
    file = tmp_path / "not" / "there" / "yet.classes"
    assert compiled.read(file) is None
    compiled.keep(file, CODE)
    assert compiled.read(file) == CODE
    compiled.keep(file, {"headwater.A": b"other"})
    assert compiled.read(file) == {"headwater.A": b"other"}
    assert [each.name for each in file.parent.iterdir()] == ["yet.classes"]


def test_a_file_that_is_not_whole_is_none(tmp_path: Path) -> None:
    file = tmp_path / "some.classes"
    compiled.keep(file, CODE)
    whole = file.read_bytes()
    for place in range(0, len(whole), 7):
        file.write_bytes(whole[:place])
        assert compiled.read(file) is None
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        assert compiled.read(file) is None


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    compiled.keep(tmp_path / "file" / "some.classes", CODE)
    assert compiled.read(tmp_path / "file" / "some.classes") is None


def test_a_file_is_for_its_sources_one_java_and_one_class_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    file = compiled.file_of(SOURCES, "17", "a.jar")
    assert file.parent == tmp_path
    assert file.name.startswith("java-C-")
    others = [
        compiled.file_of({**SOURCES, "C": "class C { }"}, "17", "a.jar"),
        compiled.file_of({"A": SOURCES["A"] + "C", "C": SOURCES["C"]}, "17", "a.jar"),
        compiled.file_of(SOURCES, "21", "a.jar"),
        compiled.file_of(SOURCES, "17", "a.jar:b.jar"),
    ]
    assert len({file, *others}) == 1 + len(others)
