"""Every bench of this directory, one after the other, each in a process of its own.

``--quick`` asks the same questions of smaller data (minutes in all); ``--save`` also writes what
each printed to ``results/``, which is committed. Names choose some: ``run_all.py append snapshot``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PEERS = {"peers", "peer_pathway", "peer_flink"}  # `make bench-peers`
SHARED = {"measure", "world", "shop", "run_all", *PEERS}


def benches() -> list[str]:
    return sorted(path.stem for path in HERE.glob("[!_]*.py") if path.stem not in SHARED)


def run(name: str, arguments: tuple[str, ...], results: Path | None) -> bool:
    """Run one bench; whether it ended well."""
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        print(line, end="", flush=True)
        printed.append(line)
    ended_well = process.wait() == 0
    if results is not None and ended_well:
        (results / f"{name}.txt").write_text("".join(printed))
    return ended_well


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("names", nargs="*", help=f"some of: {', '.join(benches())}")
    parser.add_argument("--quick", action="store_true", help="smaller data, the same questions")
    parser.add_argument("--save", action="store_true", help="write to benches/results as well")
    asked = parser.parse_args()
    results = HERE / "results" if asked.save else None
    if results is not None:
        results.mkdir(exist_ok=True)
    failed = []
    for name in asked.names or benches():
        print(f"\n== {name}")
        arguments = ("--quick",) if asked.quick else ()
        if not run(name, arguments, results):
            failed.append(name)
    if failed:
        sys.exit(f"these benches failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
