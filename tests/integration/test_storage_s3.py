"""Files as objects of an S3 server: the conformance suite, and what only objects do."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from random import Random

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.persist.blob.s3 import s3_store
from headwater.storage.errors import DefiniteError, TransientError
from headwater.storage.offsets import NOTHING, Offsets
from headwater.storage.source import Source
from headwater.storage.sources.files import Files
from headwater.storage.sources.folders import folder_of
from headwater.testing.servers import S3Server
from tests.integration.conftest import BUCKET
from tests.unit.storage.conformance import CHECKS, Rig, flat

pytestmark = pytest.mark.server

SEED = 20261115
SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string())])
numbers = itertools.count()


class Objects:
    """A prefix of its own, in which objects are made and replaced by longer ones."""

    snapshots = False

    def __init__(self, s3: S3Server, kind: str) -> None:
        self.kind = kind
        self.prefix = f"in/{next(numbers)}"
        self.store = s3_store(BUCKET, s3.environment)
        self.written: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        obstore.put(self.store, f"{self.prefix}/{name}", data)
        self.written[name] = data

    def source(self) -> Source:
        folder = folder_of(f"s3://{BUCKET}/{self.prefix}", "**/*.data")
        if self.kind == "parquet":
            return Files(folder, "parquet", schema=SCHEMA)
        return Files(folder, "lines")

    def grow(self, random: Random) -> None:
        name = random.choice(["a", "sub/b c", f"{random.random()}"])
        if self.kind == "parquet":
            rows = [{"n": n, "s": "x"} for n in range(random.randrange(1, 9))]
            sink = io.BytesIO()
            pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sink)
            self.put(f"{random.random()}.data", sink.getvalue())
            return
        lines = [b'{"n": %d}' % random.randrange(9) for _ in range(random.randrange(1, 5))]
        before = self.written.get(f"{name}.data", b"")
        grown = b"\n".join([*before.splitlines(), *lines]) + random.choice([b"", b"\n"])
        self.put(f"{name}.data", before + grown[len(before) :])
        self.put("sub/_hidden.data", b"never seen\n")
        self.put("other", b"not of the pattern\n")


@pytest.fixture(autouse=True)
def _environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["lines", "parquet"])
def test_conformance(s3: S3Server, kind: str, check: Callable[[Rig, Random], None]) -> None:
    print(f"seed {SEED}")
    check(Objects(s3, kind), Random(SEED))


def values(source: Source, lower: Offsets, upper: Offsets) -> list[bytes]:
    return [dict(payload)["value"] for *_, payload in flat(source.read(lower, upper))]


def test_the_end_of_an_object_ends_its_last_line(s3: S3Server) -> None:
    objects = Objects(s3, "lines")
    objects.put("a.data", b"one\ntwo")
    source = objects.source()
    first = source.probe()
    assert values(source, NOTHING, first) == [b"one", b"two"]
    objects.put("a.data", b"one\ntwo\nthree")
    second = source.probe()
    assert values(source, first, second) == [b"three"]
    assert values(objects.source(), NOTHING, second) == [b"one", b"two", b"three"]


def test_an_object_that_shrinks_or_goes_is_named(s3: S3Server) -> None:
    objects = Objects(s3, "lines")
    objects.put("a.data", b"one\ntwo\n")
    source = objects.source()
    upper = source.probe()
    objects.put("a.data", b"one\n")
    with pytest.raises(DefiniteError, match=r"file 'a\.data' shrank from 8 to 4 bytes"):
        source.probe()
    obstore.delete(objects.store, f"{objects.prefix}/a.data")
    with pytest.raises(DefiniteError, match=r"'a\.data' was removed before it was ingested"):
        values(source, NOTHING, upper)


def test_a_bucket_that_is_not_there_stalls(s3: S3Server) -> None:
    source = Files(folder_of("s3://headwater-nowhere/x"), "lines")
    with pytest.raises(TransientError, match=r"cannot list s3://headwater-nowhere/x/"):
        source.probe()
