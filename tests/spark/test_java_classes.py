"""Our Java sources are compiled once, and taken from a file by every JVM after that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.compute.catalyst import jvm
from headwater.compute.dataflow import program

pytestmark = pytest.mark.spark


def test_what_was_compiled_before_is_not_compiled_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    gateway, compiles = spark.sparkContext._gateway, 0
    cooked = jvm._cooked

    def counted(*given: Any) -> dict[str, bytes]:
        nonlocal compiles
        compiles += 1
        return cooked(*given)

    monkeypatch.setattr(jvm, "_cooked", counted)

    def compiled(classes: tuple[str, ...]) -> Any:
        made = jvm._compiled(gateway, classes, jvm.__package__)
        assert made.made.getClass().getName() == f"headwater.{classes[-1]}"
        return made

    first, again = compiled(jvm.CLASSES), compiled(jvm.CLASSES)
    assert compiles == 1
    assert first.code == again.code
    # Every class of them can be loaded from what was kept, by one loader.
    loader = again.made.getClass().getClassLoader()
    names = {loader.loadClass(name).getName() for name in again.code}
    assert names == set(first.code)
    compiled(program._CLASSES)
    assert compiles == 2
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-20])
    assert compiled(jvm.CLASSES).code == first.code
    assert compiles == 3


def test_what_does_not_compile_is_told_and_not_kept(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    gateway = spark.sparkContext._gateway
    loader = gateway.jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    loader = loader.getClass().getClassLoader()
    source = "package headwater; public final class Odd { org.apache.spark.Gone gone; }"
    with pytest.raises(jvm.UnsupportedSpark, match=r"Odd\.java does not compile in this Spark"):
        jvm._cooked(gateway.jvm, loader, {"Odd": source})
    assert not list(tmp_path.iterdir())
