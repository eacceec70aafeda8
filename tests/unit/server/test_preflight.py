"""Mistakes that are told before anything is opened."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from headwater.server import preflight
from headwater.server.config import Address, ServerConfig
from headwater.server.preflight import CannotStart


def a_java(folder: Path, told: str) -> str:
    """Make a JDK that says what it is; return its home."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(folder)


def test_a_used_port_names_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(CannotStart, match=f"another program listens on {address}.*--listen"):
            preflight.check_port(address, "--listen")
    preflight.check_port(address, "--listen")
    with pytest.raises(CannotStart, match="choose an address of this machine"):
        preflight.check_port(Address("192.0.2.1", 6875), "--listen")


def test_a_directory_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    with pytest.raises(CannotStart, match=r"not Headwater's \(thesis.tex\); give an empty"):
        preflight.check(ServerConfig(tmp_path, port=0))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "thesis.tex"]
    (tmp_path / "log.db").write_text("")
    preflight.check_directory(tmp_path)


def test_a_path_that_cannot_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/headwater")):
        with pytest.raises(CannotStart, match="--data"):
            preflight.check_directory(path)


def test_a_directory_that_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A superuser may write everywhere: what the system says of others is put in its place.
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(CannotStart, match="is not writable; give this user access"):
        preflight.check_directory(tmp_path)


def test_java_is_missing_or_old_or_broken(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="Spark needs Java, and none is found; install a JDK"):
        preflight.check_java("", str(tmp_path))
    with pytest.raises(CannotStart, match=r"JAVA_HOME is .*where there is none"):
        preflight.check_java(str(tmp_path), "")
    old = a_java(tmp_path / "old", 'openjdk version "1.8.0_392"')
    with pytest.raises(CannotStart, match="is Java 8; install a JDK, version 17"):
        preflight.check_java(old, "")
    mute = a_java(tmp_path / "mute", "hello")
    with pytest.raises(CannotStart, match="of no known version"):
        preflight.check_java(mute, "")
    starved = a_java(tmp_path / "starved", "Could not allocate compressed class space: 1 bytes")
    with pytest.raises(CannotStart, match=r"too little memory to start \(Could not .*ulimit"):
        preflight.check_java(starved, "")
    preflight.check_java(a_java(tmp_path / "new", 'openjdk version "21" 2023'), "")


def test_too_little_memory_says_how_much_is_needed() -> None:
    with pytest.raises(CannotStart, match="700 MiB of memory are free and 1536 are needed"):
        preflight.check_memory(1024, 700)
    with pytest.raises(CannotStart, match="give it 512 or more"):
        preflight.check_memory(100, 100_000)
    preflight.check_memory(512, 1024)
    preflight.check_memory(1024, None)
    free = preflight.available_mib()
    assert free is None or free > 0


def test_cached_files_of_a_container_are_free_memory(tmp_path: Path) -> None:
    assert preflight.group_bytes(tmp_path) is None
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text(
        "anon 200\nfile 700\ninactive_file 400\nactive_file 300\n"
    )
    assert preflight.group_bytes(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    assert preflight.group_bytes(tmp_path) == (1000, 200)
    older = tmp_path / "older" / "memory"
    older.mkdir(parents=True)
    (older / "memory.limit_in_bytes").write_text("1000\n")
    (older / "memory.usage_in_bytes").write_text("900\n")
    (older / "memory.stat").write_text("total_inactive_file 50\ntotal_active_file 50\n")
    assert preflight.group_bytes(tmp_path / "older") == (1000, 800)


def test_a_shared_location_has_an_id_that_is_kept_with_the_directory(tmp_path: Path) -> None:
    local = preflight.reentrance_id(ServerConfig(tmp_path))
    assert local == f"server:{tmp_path.resolve()}"
    shared = ServerConfig(tmp_path, blob="s3://b/p", consensus="postgresql://h/d")
    drawn = preflight.reentrance_id(shared)
    assert preflight.reentrance_id(shared) == drawn
    (tmp_path / "other").mkdir()
    other = ServerConfig(tmp_path / "other", blob="s3://b/p", consensus="postgresql://h/d")
    assert preflight.reentrance_id(other) != drawn
