"""Servers and hostile surroundings shared by the tests of the ports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

# Before anybody imports them, so that a failing check shows its values.
pytest.register_assert_rewrite(
    "headwater.testing.conformance_blob", "headwater.testing.conformance_consensus"
)

from headwater.testing.servers import S3Server, postgres_server, s3_server  # noqa: E402


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    with postgres_server() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        server.create_bucket("headwater-test")
        yield server


RunInMount = Callable[[str, str], str]


@pytest.fixture
def run_in_mount(tmp_path: Path) -> RunInMount:
    """Run Python code with a small file system of its own, in a private mount namespace.

    Called with the code and what ``mount`` shall do once it was prepared, e.g. ``remount,ro``.
    The code finds the mount point in ``sys.argv[1]``, and ``sys.argv[2]`` says ``prepare`` on a
    first run before, and ``run`` on the run whose output is returned.
    """
    probe = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("needs user and mount namespaces (unshare -rm), which this machine refuses")

    def run(code: str, options: str) -> str:
        mount_point = tmp_path / "mounted"
        mount_point.mkdir()
        program = tmp_path / "program.py"
        program.write_text(code)
        script = (
            'mount -t tmpfs -o size=256k tmpfs "$1" && "$3" "$2" "$1" prepare'
            ' && mount -o "$4" "$1" && "$3" "$2" "$1" run'
        )
        done = subprocess.run(
            [
                *("unshare", "-rm", "sh", "-ec", script, "sh"),
                *(str(mount_point), str(program), sys.executable, options),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def locked_away() -> Iterator[Path]:
    """Yield a directory that others can enter, for tests which then write-protect it."""
    directory = Path(tempfile.mkdtemp(prefix="headwater-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        directory.chmod(0o755)
        shutil.rmtree(directory)


@pytest.fixture
def unprivileged() -> Callable[[], AbstractContextManager[None]]:
    """Be somebody without rights for a while, where the tests run as root."""

    @contextmanager
    def somebody() -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return somebody
