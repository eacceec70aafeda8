"""The process tree below this process: who is in it, its CPU and its own memory (Linux only).

A view's step runs in a driver, a JVM and Python workers; a figure of one of them says little. What
``/proc`` says of all of them is what benches print and long tests watch.
"""

from __future__ import annotations

import os
from pathlib import Path


def descendants() -> dict[str, list[str]]:
    """Return what ``stat`` says of every living process below this one, by its number."""
    known: dict[str, list[str]] = {}
    for entry in os.scandir("/proc") if Path("/proc/self/stat").exists() else ():
        if entry.name.isdigit():
            try:
                known[entry.name] = _stat(entry.name)
            except OSError:  # it has just ended
                continue
    me = str(os.getpid())
    found = {}
    for pid, fields in known.items():
        above = fields[1]
        while above in known and above != me:
            above = known[above][1]
        if above == me and pid != me:
            found[pid] = fields
    return found


def _stat(pid: str) -> list[str]:
    # The name of the program may contain anything; what follows its last parenthesis may not.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def threads_cpu_s(pid: str) -> dict[str, float]:
    """Return the CPU of each living thread of a process, by its number; to the nanosecond."""
    found = {}
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # it has just ended
        return {}
    for thread in threads:
        try:
            used = (thread / "schedstat").read_text()
        except OSError:  # it has just ended
            continue
        found[thread.name] = int(used.split()[0]) / 1e9
    return found


def anonymous_mib(pid: str = "self") -> float:
    """Return the anonymous memory of a process: what it holds itself, without mapped files."""
    for line in Path("/proc", pid, "status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0  # a zombie has none


def shared_anonymous_mib(pid: str = "self") -> float:
    """Return its share of anonymous memory: a page that n processes have is the n-th part of one.

    Python workers are forked, and have most of what their daemon has loaded in common.
    """
    for line in Path("/proc", pid, "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) / 1024
    return anonymous_mib(pid)  # of an older kernel


def tree_anonymous_mib() -> dict[str, float]:
    """Return the anonymous memory of the process tree, by program; each page counts once."""
    found: dict[str, float] = {}
    for pid in ("self", *descendants()):
        try:
            name = Path("/proc", pid, "comm").read_text().strip()
            found[name] = found.get(name, 0.0) + shared_anonymous_mib(pid)
        except OSError:  # it has just ended
            continue
    return found
