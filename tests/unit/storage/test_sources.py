"""The conformance suite over the sources that need no server, and what files alone can do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.base.clock import ManualClock
from headwater.persist.blob.memory import MemoryBlob
from headwater.persist.client import open_location
from headwater.persist.consensus.memory import MemoryConsensus
from headwater.persist.core import Settings
from headwater.storage.errors import DefiniteError, TransientError
from headwater.storage.generators.auction import Auctions
from headwater.storage.generators.counter import Counter
from headwater.storage.generators.generator import Generator, Stream
from headwater.storage.generators.key_value import KeyValue
from headwater.storage.generators.nexmark import Nexmark
from headwater.storage.generators.tpch import Tpch
from headwater.storage.inbox import Inbox, Received
from headwater.storage.offsets import NOTHING, Offsets
from headwater.storage.source import Source
from headwater.storage.sources.files import Files
from headwater.storage.sources.webhook import Webhook
from tests.unit.storage.conformance import CHECKS, Rig, flat

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string())])


class GeneratorRig:
    snapshots = False

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.clock = ManualClock(5_000)

    def source(self) -> Source:
        return Generator(self.stream, self.clock, start_ms=5_000, per_second=10)

    def grow(self, random: Random) -> None:
        self.clock.set(self.clock.now_ms() + random.randrange(100, 1_500))


class LinesRig:
    """Appends whole lines and parts of lines to several files, in folders too."""

    snapshots = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "sub").mkdir()

    def source(self) -> Source:
        return Files(self.directory, "lines")

    def grow(self, random: Random) -> None:
        for _ in range(3):
            name = random.choice(["a.json", "b.json", "sub/c.json", f"new-{random.random()}.json"])
            with (self.directory / name).open("ab") as file:
                for _ in range(random.randrange(1, 5)):
                    file.write(random.choice([b'{"n": 1}\n', b"\n", b'{"n": 2, "s": "x"}\r\n']))
                file.write(random.choice([b"", b'{"n": '])[: random.randrange(1, 9)])
            # Whatever line was left open is closed by the next that grows this file.
        (self.directory / ".hidden").write_bytes(b"never seen\n")


class ParquetRig:
    snapshots = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def source(self) -> Source:
        return Files(self.directory, "parquet", schema=SCHEMA)

    def grow(self, random: Random) -> None:
        rows = [{"n": n, "s": str(random.random())} for n in range(random.randrange(1, 20))]
        path = self.directory / f"{random.random()}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
        (self.directory / f"{random.random()}.parquet").write_bytes(b"PAR1 and still being written")


class WebhookRig:
    """Hands over requests of several messages; segments are so small that they change often."""

    snapshots = False

    def __init__(self, directory: Path) -> None:
        del directory
        self.clock = ManualClock(5_000)
        self.client = open_location(
            blob=MemoryBlob(),
            consensus=MemoryConsensus(),
            settings=Settings(maintenance=False),
            clock=self.clock,
        )
        self.inbox = Inbox(self.client, "u1", self.clock)

    def source(self) -> Source:
        return Webhook(Inbox(self.client, "u1", self.clock))

    def grow(self, random: Random) -> None:
        for _ in range(random.randrange(1, 4)):
            count = random.randrange(1, 5)
            self.inbox.append([Received(random.randbytes(9)) for _ in range(count)]).result()

    def close(self) -> None:
        self.inbox.close()
        self.client.stop()


RIGS: dict[str, Callable[[Path], Rig]] = {
    "counter": lambda _: GeneratorRig(Counter(keep=5)),
    "key_value": lambda _: GeneratorRig(KeyValue(keys=4, seed=7, deletes=5)),
    "auction": lambda _: GeneratorRig(Auctions(seed=3, lasting=4)),
    "nexmark": lambda _: GeneratorRig(Nexmark(seed=3, lasting=8)),
    "tpch": lambda _: GeneratorRig(Tpch(orders=8, refresh=2, seed=3)),
    "lines": LinesRig,
    "parquet": ParquetRig,
    "webhook": WebhookRig,
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("rig", RIGS)
def test_conformance(
    rig: str,
    check: Callable[[Rig, Random], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headwater.storage.inbox.SEGMENT_BYTES", 300)
    seed = 20261115
    print(f"seed {seed}")
    made = RIGS[rig](tmp_path)
    try:
        check(made, Random(seed))
    finally:
        if isinstance(made, WebhookRig):
            made.close()


# ---- generators ------------------------------------------------------------------------------


def test_a_clock_set_back_takes_nothing_away() -> None:
    rig = GeneratorRig(Counter())
    rig.clock.set(9_000)
    source = rig.source()
    reached = source.probe()
    rig.clock.set(0)
    assert source.probe() == reached
    again = rig.source()
    again.commit(reached)  # as an ingestion does when it starts
    assert again.probe() == reached


def test_a_generator_ends_at_its_limit() -> None:
    clock = ManualClock(0)
    source = Generator(Counter(), clock, start_ms=0, per_second=1_000, limit=7)
    clock.set(10**6)
    assert source.probe() == Offsets({"0": 7})


# ---- files -----------------------------------------------------------------------------------


def test_a_line_is_there_when_its_newline_is(tmp_path: Path) -> None:
    source, path = Files(tmp_path, "lines"), tmp_path / "a.json"
    path.write_bytes(b'{"n": 1}\n{"n": 2')
    upper = source.probe()
    assert upper == Offsets({"a.json": 9})
    with path.open("ab") as file:
        file.write(b"2}\n")
    later = source.probe()
    (found,) = flat(source.read(upper, later))
    assert found == ("files", "a.json", 9, (("key", None), ("value", b'{"n": 22}')))


def test_long_lines_and_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.storage.sources.files.BLOCK_BYTES", 7)
    lines = [b"x" * n for n in range(1, 40)]
    (tmp_path / "a").write_bytes(b"\n".join(lines) + b"\nrest without an end")
    source = Files(tmp_path, "lines")
    values = [dict(payload)["value"] for *_, payload in flat(source.read(NOTHING, source.probe()))]
    assert values == lines


def test_every_file_may_have_a_header(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"n,s\n1,x\n")
    source = Files(tmp_path, "lines", header=True)
    values = [dict(payload)["value"] for *_, payload in flat(source.read(NOTHING, source.probe()))]
    assert values == [b"1,x", b"1,x"]


def test_a_file_that_shrinks_is_named(tmp_path: Path) -> None:
    source, path = Files(tmp_path, "lines"), tmp_path / "a.json"
    path.write_bytes(b"1\n2\n3\n")
    upper = source.probe()
    path.write_bytes(b"1\n")
    with pytest.raises(DefiniteError, match=r"file 'a\.json' shrank from 6 to 2 bytes; files may"):
        source.probe()
    with pytest.raises(DefiniteError, match=r"'a\.json' shrank"):
        flat(Files(tmp_path, "lines").read(NOTHING, upper))
    # Also for a process that has never probed it, and only knows what is durable.
    again = Files(tmp_path, "lines")
    again.commit(upper)
    with pytest.raises(DefiniteError, match=r"'a\.json' shrank"):
        again.probe()


def test_a_file_may_go_once_it_is_ingested_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"1\n2\n")
    upper = Files(tmp_path, "lines").probe()
    path.unlink()
    source = Files(tmp_path, "lines")
    with pytest.raises(DefiniteError, match=r"'a\.json' was removed before it was ingested"):
        flat(source.read(NOTHING, upper))
    source.commit(upper)
    assert source.probe() == upper


def test_a_directory_that_is_away_stalls(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="does not exist; create it, or mount it"):
        Files(tmp_path / "nowhere", "lines").probe()


def test_a_parquet_column_that_does_not_fit_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": ["x"], "s": ["y"]}), tmp_path / "a.parquet")
    source = Files(tmp_path, "parquet", schema=SCHEMA)
    with pytest.raises(DefiniteError, match=r"'a\.parquet': column 'n' \(int64\) is string"):
        flat(source.read(NOTHING, source.probe()))


def test_a_parquet_column_added_later_is_ignored_and_a_missing_one_is_null(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1], "more": [2.0]}), tmp_path / "a.parquet")
    source = Files(tmp_path, "parquet", schema=SCHEMA)
    (found,) = flat(source.read(NOTHING, source.probe()))
    assert dict(found[3]) == {"n": 1, "s": None, "__diff": 1}
