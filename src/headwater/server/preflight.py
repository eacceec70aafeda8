"""What is looked at before anything is opened: mistakes that a person can mend, one sentence each.

The order is that of the price: paths, ports, Java, memory. A port is tried before the location is
opened, because opening it with our reentrance id would fence the server that has the port.

Kept by: :func:`check`. Relied on by: ``server/compose.py``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

from headwater.base.errors import InvalidUsage
from headwater.server.config import Address, ServerConfig

OURS: Final = ("log.db", "blob", "server-id")
"""One of these is in every directory that a server has used."""
JAVA_MIN: Final = 17
BESIDE_JVM_MIB: Final = 512
"""What Python and its workers need at the least beside the JVM's heap."""
HEAP_PART: Final = 4
HEAP_MIB_MIN, HEAP_MIB_MAX = 1024, 4096
"""The heap of Spark's driver, if nobody says: a quarter of the memory, within these."""
GROUP: Final = Path("/sys/fs/cgroup")
"""Where a container sees the control group that limits it."""
_JAVA_SECONDS: Final = 30
_MIB: Final = 1 << 20
_ID_BYTES: Final = 8


class CannotStart(InvalidUsage):
    """Why a server cannot start, and what to do."""


def check(config: ServerConfig) -> None:
    """Refuse what cannot work; nothing is changed but that a missing directory is made."""
    check_directory(config.data)
    check_port(config.address, "--listen")
    if config.console is not None:
        check_port(config.console, "--console")
    check_java(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))
    available = available_mib()
    check_memory(spark_memory(config.spark_memory_mib, total_mib(), available), available)


def check_directory(data: Path) -> None:
    """Refuse a directory that cannot be a location's; one that is missing is made."""
    remedy = "choose another with --data"
    try:
        data.mkdir(parents=True, exist_ok=True)
        names = sorted(entry.name for entry in data.iterdir())
    except (FileExistsError, NotADirectoryError):
        raise CannotStart(f"{data} is not a directory; {remedy}") from None
    except OSError as error:
        raise CannotStart(f"{data} cannot be used: {error.strerror}; {remedy}") from None
    if not os.access(data, os.W_OK | os.X_OK):
        raise CannotStart(f"{data} is not writable; give this user access to it, or {remedy}")
    strange = [name for name in names if not name.startswith(".")]
    if strange and not any(name in names for name in OURS):
        raise CannotStart(
            f"{data} holds files that are not Headwater's ({strange[0]}); "
            "give an empty directory, a new one, or one that a server has used"
        )


def check_port(address: Address, option: str) -> None:
    """Refuse an address that cannot be listened on."""
    if address.port == 0 or not address.host:
        return
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            raise cannot_listen(address, option, error) from None


def cannot_listen(address: Address, option: str, error: OSError) -> CannotStart:
    """Return the refusal for an address that the system refused."""
    if error.errno == errno.EADDRINUSE:
        return CannotStart(
            f"another program listens on {address}; stop it, or choose another port with "
            f"{option} {address.host}:PORT (0: any free one)"
        )
    return CannotStart(
        f"cannot listen on {address}: {error.strerror or error}; choose an address of this "
        f"machine, and a port that this user may take, with {option} HOST:PORT"
    )


def check_java(java_home: str, path: str) -> None:
    """Refuse to start without a JDK that Spark runs on."""
    remedy = (
        f"install a JDK, version {JAVA_MIN} or newer (Debian: apt-get install "
        "openjdk-17-jdk-headless), or set JAVA_HOME to one"
    )
    found = f"{java_home}/bin/java" if java_home else shutil.which("java", path=path)
    if not found or not os.access(found, os.X_OK):
        where = f"JAVA_HOME is {java_home}, where there is none" if java_home else "none is found"
        raise CannotStart(f"Spark needs Java, and {where}; {remedy}")
    try:
        told = subprocess.run(
            [found, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotStart(f"{found} does not run: {error}; {remedy}") from None
    version = java_version(told.stderr + told.stdout)
    if not version and re.search("allocate|reserve|memory", told.stderr + told.stdout):
        first = next(line for line in (told.stderr + told.stdout).splitlines() if line.strip("# "))
        raise CannotStart(
            f"{found} gets too little memory to start ({first.strip('# ')}); free some, or raise "
            "the limit of this shell or container (ulimit -v)"
        )
    if version < JAVA_MIN:
        raise CannotStart(f"{found} is Java {version or 'of no known version'}; {remedy}")


def java_version(told: str) -> int:
    """Return the major version out of what ``java -version`` says; 0: it does not say.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('version "1.8.0_392"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return 0 if found is None else int(found.group(1))


def spark_memory(asked: int, total: int | None, available: int | None) -> int:
    """Return the heap of Spark's driver, in MiB: as asked, or by the memory that there is.

    >>> spark_memory(0, 8192, 7000), spark_memory(0, 2048, 1200), spark_memory(700, 8192, 7000)
    (2048, 1024, 700)
    """
    if asked:
        return asked
    wanted = HEAP_MIB_MIN if total is None else total // HEAP_PART
    # What others have taken cannot be had; less than the least is refused, not taken.
    free = wanted if available is None else available - BESIDE_JVM_MIB
    return max(HEAP_MIB_MIN, min(wanted, free, HEAP_MIB_MAX))


def check_memory(spark_memory_mib: int, available: int | None) -> None:
    """Refuse to start where the JVM would be killed soon; None: it is not known."""
    needed = spark_memory_mib + BESIDE_JVM_MIB
    if available is not None and available < needed:
        raise CannotStart(
            f"{available} MiB of memory are free and {needed} are needed ({spark_memory_mib} for "
            "Spark); free some, or give Spark less with --spark-memory-mib (512 at the least)"
        )
    if spark_memory_mib < 512:
        raise CannotStart(
            f"Spark does not start with {spark_memory_mib} MiB; give it 512 or more with "
            "--spark-memory-mib"
        )


def total_mib() -> int | None:
    """Return how much memory this process may have in all; None: the system does not tell."""
    found = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        found.append(_told_mib("MemTotal:"))
    group = group_bytes(GROUP)
    if group is not None:
        found.append(group[0] // _MIB)
    return min(found) if found else None


def _told_mib(name: str) -> int:
    told = Path("/proc/meminfo").read_text("ascii").splitlines()
    return int(next(line for line in told if line.startswith(name)).split()[1]) // 1024


def available_mib() -> int | None:
    """Return how much memory this process may still take; None: the system does not tell."""
    found = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        found.append(_told_mib("MemAvailable:"))
    group = group_bytes(GROUP)
    if group is not None:
        found.append(max(0, group[0] - group[1]) // _MIB)
    return min(found) if found else None


def group_bytes(group: Path) -> tuple[int, int] | None:
    """Return limit and use of the control group mounted at ``group``; None: it limits nothing.

    Cached files count as used there, but the kernel drops them for whoever needs memory: a
    container that has just installed its packages is full of them, and a server starts all the
    same.
    """
    for limit_file, used_file, total in (
        ("memory.max", "memory.current", ""),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_"),
    ):
        with contextlib.suppress(OSError, ValueError):
            limit = int((group / limit_file).read_text("ascii"))  # "max": there is none.
            used = int((group / used_file).read_text("ascii"))
            stat = (group / limit_file).with_name("memory.stat").read_text("ascii")
            cached = {f"{total}inactive_file", f"{total}active_file"}
            lines = (line.split() for line in stat.splitlines())
            return limit, used - sum(int(number) for name, number in lines if name in cached)
    return None


def reentrance_id(config: ServerConfig) -> str:
    """Return the id under which this directory's server may take its own lock again.

    The directory is this server's own: a process that crashed holding the lock is followed by one
    with the same id, which fences it. Of a shared location the path says nothing (two machines may
    both have it), so the id is one that was drawn once, and is kept in the directory.
    """
    if not config.shared:
        return f"server:{config.data.resolve()}"
    path = config.data / "server-id"
    with contextlib.suppress(FileExistsError), path.open("x", encoding="ascii") as file:
        file.write(secrets.token_hex(_ID_BYTES) + "\n")
    return f"server:{path.read_text('ascii').strip()}"
