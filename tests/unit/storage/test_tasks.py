"""A large range read in pieces by tasks, in this process: the same collection as without them.

That pieces travel to other processes is shown by ``tests/spark/test_ingested.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.collection.run_layout import LAYOUTS
from headwater.persist.blob.file import FileBlob
from headwater.persist.client import open_location
from headwater.persist.core import Core, Step
from headwater.persist.spark_parts import Writing, place_of
from headwater.storage import tasks, upsert_range, written_by_tasks
from headwater.storage.dead_letters import Policy
from headwater.storage.decode import Included
from headwater.storage.envelope import Upsert
from headwater.storage.format import Json
from headwater.storage.ingestion import Ingestion
from headwater.storage.outputs import Definition, Output
from headwater.storage.sources.files import OUTPUT, Files

SEED = 20261116
ROW = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.int64())])
NEWEST = Upsert(Json(ROW), ("n",), policy=Policy.SKIP, included=(Included("partition", "file"),))


class Here:
    """Tasks that run one after the other, here."""

    at_once = 2

    def __init__(self, ran: list[int], core: Core, step: Step) -> None:
        self._ran = ran
        self._core, self._step = core, step

    def run(self, work: Sequence[Callable[[str], bytes]]) -> list[bytes]:
        self._ran.append(len(work))
        return [each(str(number)) for number, each in enumerate(work)]

    def writing(self) -> Writing:
        place = place_of(self._core)
        assert place is not None
        return Writing(place, self._step.name())


def ingested(root: Path, name: str, how: Any) -> list[Any]:
    """Ingest two ranges; return what there is at each time."""
    random = Random(SEED)
    folder = root / f"in-{name}"
    folder.mkdir()
    definition = Definition("o", (Output(OUTPUT, "o", NEWEST),))
    found = []
    with open_location(root / name, layouts=LAYOUTS) as client:
        ingestion = Ingestion(client, definition, Files(folder, "lines"), tasks=how)
        for now_ms in (1_000, 2_000):
            for file in "abc":
                with (folder / file).open("ab") as lines:
                    for _ in range(60):
                        row = (random.randrange(40), random.randrange(3))
                        bad = random.random() < 0.02
                        lines.write(b"?\n" if bad else b'{"n": %d, "s": %d}\n' % row)
            assert ingestion.tick(now_ms)
            rows = client.reader("o").snapshot().to_table().to_pylist()
            letters = client.reader("o/dead_letters").snapshot().to_table().num_rows
            found += [sorted(map(str, rows)), letters, ingestion.statistics.updates]
        ingestion.stop()
    return found


@pytest.mark.parametrize(
    ("near", "large"),
    [(True, True), (False, True), (False, False)],
    ids=["on this disk", "elsewhere", "elsewhere, folded here"],
)
def test_what_tasks_put_aside_of_an_upsert_is_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, near: bool, large: bool
) -> None:
    print(f"seed {SEED}")
    here = ingested(tmp_path, "here", None)
    monkeypatch.setattr(tasks, "MESSAGES_MIN", 1)
    monkeypatch.setattr(upsert_range, "MESSAGES_AT_ONCE", 15)
    if large:
        monkeypatch.setattr(written_by_tasks, "FOLD_MIN", 1)
    if not near:  # As in an object store: nothing can be mapped where it lies.
        monkeypatch.setattr(FileBlob, "local_path", lambda *_: None)
    ran: list[int] = []
    assert ingested(tmp_path, "there", partial(Here, ran)) == here
    assert ran == ([3, 2, 3, 2] if large else [3, 3]), "a file each, and a share each"
    assert not list((tmp_path / "there").rglob("*.told")), "nothing is left lying about"
