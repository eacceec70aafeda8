"""The classes that Spark's JVM loads, kept in a file from which the next JVM starts faster.

    python -m headwater.compute.class_archive        # once, at set-up; says what it saved

Most of what a JVM does in its first ten seconds is to load and verify the same classes of the same
jars. Java's application class-data sharing keeps them in an archive (*AppCDS*; about 160 MB). It is
good for one Java and one PySpark, both of which are in its name; one that does not fit is ignored
by Java, and a JVM without one starts as before. It decides nothing but the time of a start.

It lies in the user's cache directory (``HEADWATER_CACHE``, else ``XDG_CACHE_HOME``/headwater). A
JVM writes it when it ends: so one is started for that, does what a server does first, and is
stopped. It is moved to its name when it is whole.

Kept by: :func:`make`, at set-up. Relied on by: ``compute/session.py``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

CACHE: Final = "HEADWATER_CACHE"
_JAVA_SECONDS: Final = 30
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""Java warns of every class that it cannot share."""


def directory(environment: dict[str, str] | None = None) -> Path:
    """Return where archives lie."""
    given = dict(os.environ) if environment is None else environment
    if given.get(CACHE):
        return Path(given[CACHE])
    cache = given.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "headwater"


def name_of(java: str, pyspark: str, place: str) -> str:
    """Return the name of the archive for a Java (what it says it is) and a PySpark somewhere."""
    mark = hashlib.sha256(f"{java}\0{place}".encode()).hexdigest()[:16]
    return f"spark-{pyspark}-{mark}.jsa"


@lru_cache(maxsize=1)
def path() -> Path | None:
    """Return where the archive of this Java and this PySpark is, or would be; None: no Java."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None:
        return None
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    import pyspark

    place = str(Path(pyspark.__file__).parent)
    return directory() / name_of(told.stderr, metadata.version("pyspark"), place)


def options(archive: Path | None) -> str:
    """Return the options with which a JVM uses the archive, if there is one."""
    if archive is None or not archive.is_file() or any(c.isspace() for c in str(archive)):
        return ""
    return f"-XX:SharedArchiveFile={archive} {_QUIET}"


def make() -> Path | None:
    """Make the archive, unless it is there; return where it is. None: this Java makes none."""
    wanted = path()
    if wanted is None or wanted.is_file():
        return wanted
    wanted.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wanted.parent) as beside:
        made = Path(beside) / "classes.jsa"
        # In a process of its own: the JVM of this one may be running already.
        program = [sys.executable, "-m", "headwater.compute.class_archive", "--dump", str(made)]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not made.is_file():
            return None
        made.replace(wanted)
    return wanted


def _dump(archive: str) -> None:
    """Start a JVM, do what a server does first, and let it write what it loaded when it ends."""
    from headwater.compute.catalyst.jvm import front_end
    from headwater.compute.catalyst.try_eval import passage_session
    from headwater.compute.columns.frame import java_side
    from headwater.compute.session import SparkSettings, close_session, open_session

    java = f"-XX:ArchiveClassesAtExit={archive} {_QUIET}"
    session = open_session(SparkSettings(java_options=java))
    jvm: Any = session.sparkContext._gateway.proc
    front_end(session)
    java_side(session)
    passage_session(session)
    session.sql(
        "SELECT k, sum(n) AS total, row_number() OVER (ORDER BY k) AS place FROM ("
        "SELECT a.id AS n, b.id % 3 AS k FROM range(10) a JOIN range(10) b ON a.id = b.id) "
        "GROUP BY k ORDER BY k"
    ).toArrow()
    session.range(3).mapInArrow(lambda batches: batches, "id bigint").toArrow()
    close_session()
    session.sparkContext._gateway.shutdown()
    jvm.stdin.close()  # It ends when who started it is gone, and it is waited for here.
    jvm.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--dump"]:
        _dump(sys.argv[2])
    else:
        found = make()
        sys.stdout.write(f"{found or 'no archive: this Java makes none'}\n")
