"""Remap, reclock and resumption of one source, told in directive files.

Two ingesters, ``a`` and ``b``, each know the remap they last read; the durable one is the
collection. After *every* directive

- the durable remap is well formed, and says of every time what it said before (as far as it is
  still known);
- every record that ever got a time has it still, or that time was compacted away.

``source p=5 q=2`` sets what is upstream, ``probe by=a at=1000`` asks for it, ``mint by=a`` appends
what came of it. Rows of remap are ``partition=offset``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater.base.errors import HeadwaterError
from headwater.storage.offsets import NOTHING, Offsets
from headwater.storage.reclock import offsets_at, reclock_frontier, time_of
from headwater.storage.remap import Minted, Probe, Remap, mint
from headwater.storage.resumption import Uppers, resumption
from headwater.testing.datadriven import Directive, collect, run_file

FOLDER = Path(__file__).parent / "storage"
OFFSETS_MAX = 16

Args = dict[str, str]


def offsets(args: Mapping[str, str], *but: str) -> Offsets:
    return Offsets({name: int(value) for name, value in args.items() if name not in but})


class Story:
    """A source, its durable remap, and what each ingester knows of it."""

    def __init__(self) -> None:
        self.upstream = NOTHING
        self.rows: list[Mapping[str, Any]] = []
        self.since = self.upper = 0
        self.known: dict[str, Remap] = {}
        self.probes: dict[str, Probe] = {}
        self.answers: dict[int, Offsets] = {}
        self.stamped: dict[tuple[str, int], int] = {}

    @property
    def durable(self) -> Remap:
        return Remap.read(self.rows, self.since, self.upper)

    def handle(self, directive: Directive) -> str:
        args = dict(directive.args)
        try:
            answer: str = getattr(self, f"_{directive.command}")(args)
        except (HeadwaterError, ValueError) as error:
            answer = f"{type(error).__name__}: {error}"
        self._check()
        return answer

    # ---- directives --------------------------------------------------------------------------

    def _source(self, args: Args) -> str:
        self.upstream = offsets(args)
        return ""

    def _read(self, args: Args) -> str:
        """An ingester reads remap; the first thing it does, and what it does after a lost race."""
        self.known[args["by"]] = self.durable
        return self._text(self.durable)

    def _probe(self, args: Args) -> str:
        self.probes[args["by"]] = Probe(int(args["at"]), self.upstream)
        return f"{self.upstream}"

    def _mint(self, args: Args) -> str:
        who = args["by"]
        found = mint("s", self.known[who], self.probes.pop(who))
        if found is None:
            return "nothing: that time is bound already"
        if found.lower != self.upper:
            return f"refused: remap is at {self.upper}, not at {found.lower}; read, and probe again"
        self.rows += found.updates().to_pylist()
        self.upper = found.upper
        self.known[who] = self.durable
        return f"{self._rows(found)}\n{self._text(self.durable)}"

    def _reclock(self, args: Args) -> str:
        remap = self.durable
        lines = []
        for name, value in args.items():
            time = time_of(remap, name, int(value))
            lines.append(f"{name} {value}: {'not bound yet' if time is None else time}")
        return "\n".join(lines)

    def _frontier(self, args: Args) -> str:
        return f"complete before {reclock_frontier(self.durable, offsets(args))}"

    def _invert(self, args: Args) -> str:
        return f"{offsets_at(self.durable, int(args['upper']))}"

    def _compact(self, args: Args) -> str:
        self.since = self.durable.compact(int(args["since"])).since
        return self._text(self.durable)

    def _resume(self, args: Args) -> str:
        outputs = {n: int(v) for n, v in args.items() if n not in {"dead_letters", "remap"}}
        uppers = Uppers(outputs, int(args["dead_letters"]), int(args.get("remap", self.upper)))
        found = resumption(uppers, self.durable)
        return f"at {found.time}, from {found.offsets}; remap may be compacted to " + str(
            found.remap_since
        )

    # ---- what always holds -------------------------------------------------------------------

    def _check(self) -> None:
        remap = self.durable
        for time in range(remap.since, remap.upper, max(1, remap.upper // 50)):
            assert self.answers.setdefault(time, remap.at(time)) == remap.at(time)
        for partition in "pqr":
            for offset in range(OFFSETS_MAX):
                if remap.latest.allows(partition, offset):
                    continue
                if remap.since and not remap.at(remap.since).allows(partition, offset):
                    continue
                stamp = time_of(remap, partition, offset)
                assert stamp is not None
                assert self.stamped.setdefault((partition, offset), stamp) == stamp

    @staticmethod
    def _rows(found: Minted) -> str:
        rows = [
            f"{r['partition']}={r['offset']}@{r['__time']}:{r['__diff']:+}"
            for r in found.updates().to_pylist()
        ]
        return " ".join(rows) or "no rows"

    @staticmethod
    def _text(remap: Remap) -> str:
        bindings = ", ".join(f"{b.time} -> {b.offsets}" for b in remap.bindings)
        return f"[{remap.since}, {remap.upper}) {bindings}".rstrip()


@pytest.mark.parametrize("path", collect(FOLDER), ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    run_file(path, Story().handle)
