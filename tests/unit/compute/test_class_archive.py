"""Which archive fits, and when it is used."""

from __future__ import annotations

from pathlib import Path

from headwater.compute import class_archive
from headwater.compute.session import SparkSettings, configuration


def test_an_archive_is_for_one_java_and_one_pyspark() -> None:
    name = class_archive.name_of("17.0.1", "4.3.0", "here")
    assert name.startswith("spark-4.3.0-")
    others = [
        ("17.0.2", "4.3.0", "here"),
        ("17.0.1", "4.3.0", "there"),
        ("17.0.1", "4.3.1", "here"),
    ]
    assert name not in {class_archive.name_of(*other) for other in others}


def test_it_lies_in_the_cache_of_the_user() -> None:
    assert class_archive.directory({"HEADWATER_CACHE": "c"}) == Path("c")
    assert class_archive.directory({"XDG_CACHE_HOME": "x"}) == Path("x/headwater")
    assert class_archive.directory({}) == Path.home() / ".cache" / "headwater"


def test_only_what_is_there_is_used(tmp_path: Path) -> None:
    archive = tmp_path / "a.jsa"
    assert class_archive.options(archive) == ""
    assert class_archive.options(None) == ""
    archive.write_bytes(b"x")
    options = class_archive.options(archive)
    assert f"-XX:SharedArchiveFile={archive}" in options
    made = configuration(SparkSettings(), tmp_path, tmp_path / "log", options)
    assert made["spark.driver.extraJavaOptions"].endswith(options)
