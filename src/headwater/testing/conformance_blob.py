"""The contract of ``Blob``, as checks that every implementation must pass.

A check takes a function that opens *the same, initially empty* location each time it is called
(for memory: returns the same object). It asserts; it needs no test framework. Usage::

    @pytest.mark.parametrize("check", BLOB_CHECKS, ids=lambda check: check.__name__)
    def test_my_blob(check, tmp_path):
        check(lambda: MyBlob(tmp_path))

The contract stands in ``headwater.persist.location``; each check quotes the sentence it tests.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier, Event
from typing import Final

from headwater.base.errors import InvalidUsage
from headwater.persist.location import Blob, ObjectInfo

OpenBlob = Callable[[], Blob]

RACERS: Final = 8

# In key order. '-' and '.' sort before '/', digits and letters after it.
KEYS_IN_ORDER: Final = (
    "a-b/x",
    "a.b",
    "a/b",
    "a/b-c/d",
    "a/b.c",
    "a/b0",
    "a/bc/d",
    "a0",
    "ab/c",
    "b/..c/d..",
    "b/.hidden",
    "b/c.parquet",
    "b/c.parquet-1",
)
NOT_KEYS: Final = (
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/..",
    "a/../b",
    "a/./b",
    "A",
    "a b",
    "a\n",
    "a\x00",
    "ä",
    "a~b",
    "a%2fb",
    "a\\b",
    "x" * 256,
    "/".join(["x" * 200] * 5),
)
NOT_PREFIXES: Final = ("/", "/a", "a//", "../", "a/../", "A", "a b", "~")


def check_get_returns_the_whole_object(open_blob: OpenBlob) -> None:
    """Get: "the whole object, or None where there is none"."""
    blob = open_blob()
    content = Random(1).randbytes(300_000)
    assert blob.get("some/key") is None
    assert blob.create("some/key", content) is True
    assert blob.get("some/key") == content
    assert blob.get("some/other") is None
    assert blob.get("some") is None, "a directory of keys is not an object"
    assert blob.get("some/key/below") is None


def check_empty_object(open_blob: OpenBlob) -> None:
    """An object without bytes is an object."""
    blob = open_blob()
    assert blob.create("empty", b"") is True
    assert blob.get("empty") == b""
    assert blob.get_range("empty", 0, 10) == b""
    assert list(blob.list()) == [ObjectInfo("empty", 0)]
    assert blob.create("empty", b"x") is False
    assert blob.delete("empty") is True
    assert blob.get("empty") is None


def check_range_at_the_edges(open_blob: OpenBlob) -> None:
    """get_range: "length bytes from offset (fewer only at the end of the object)"."""
    blob = open_blob()
    content = b"0123456789"
    blob.create("k", content)
    for offset in (0, 1, 9, 10, 11, 1_000):
        for length in (0, 1, 9, 10, 11, 2**40):
            assert blob.get_range("k", offset, length) == content[offset : offset + length]
            assert blob.get_range("missing", offset, length) is None
    for offset, length in ((-1, 1), (0, -1)):
        _assert_refused(lambda o=offset, n=length: blob.get_range("k", o, n))  # type: ignore[misc]


def check_create_is_exclusive(open_blob: OpenBlob) -> None:
    """Create: "False if the key exists already", and the object is never modified."""
    blob, other = open_blob(), open_blob()
    assert blob.create("k", b"first") is True
    assert blob.create("k", b"second") is False
    assert other.create("k", b"third") is False
    assert blob.create("k", b"first") is False, "the same content makes no difference"
    assert blob.get("k") == other.get("k") == b"first"


def check_create_race_has_one_winner(open_blob: OpenBlob) -> None:
    """Of eight creators of one key exactly one succeeds, and its content stays."""
    blobs = [open_blob() for _ in range(RACERS)]
    with ThreadPoolExecutor(RACERS) as pool:
        for round_number in range(10):
            key, start = f"race/{round_number}", Barrier(RACERS)

            def create(racer: int, key: str = key, start: Barrier = start) -> bool:
                start.wait()
                return blobs[racer].create(key, b"%d" % racer * 1_000)

            won = list(pool.map(create, range(RACERS)))
            assert won.count(True) == 1, f"{key}: {won}"
            assert blobs[0].get(key) == b"%d" % won.index(True) * 1_000


def check_create_is_atomic(open_blob: OpenBlob) -> None:
    """Create: "a reader sees all of it or nothing", also through list and get_range."""
    blob, reader_blob = open_blob(), open_blob()
    content = Random(2).randbytes(1_000_000)
    done = Event()

    def read() -> None:
        while not done.is_set():
            for key in ("atomic/0", "atomic/4"):
                assert reader_blob.get(key) in (None, content)
                assert reader_blob.get_range(key, len(content) - 3, 9) in (None, content[-3:])
            assert all(info.size == len(content) for info in reader_blob.list("atomic/"))

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            for number in range(5):
                blob.create(f"atomic/{number}", content)
        finally:
            done.set()
        reader.result()
    assert len(list(blob.list())) == 5, "nothing else, no temporary object, is listed"


def check_delete_is_idempotent(open_blob: OpenBlob) -> None:
    """Delete: "False (and no error) where there was none"; the key can be created again."""
    blob, other = open_blob(), open_blob()
    assert blob.delete("d/k") is False
    blob.create("d/k", b"1")
    assert other.delete("d/k") is True
    assert blob.delete("d/k") is False
    assert blob.get("d/k") is None
    assert list(blob.list()) == []
    assert blob.delete("d") is False, "a directory of keys is not an object"
    assert blob.create("d/k", b"2") is True
    assert other.get("d/k") == b"2"


def check_list_order(open_blob: OpenBlob) -> None:
    """List: "in key order", with sizes."""
    blob = open_blob()
    shuffled = list(KEYS_IN_ORDER)
    Random(3).shuffle(shuffled)
    for key in shuffled:
        blob.create(key, b"x" * len(key))
    assert list(blob.list()) == [ObjectInfo(key, len(key)) for key in KEYS_IN_ORDER]
    assert sorted(KEYS_IN_ORDER) == list(KEYS_IN_ORDER)


def check_list_prefix_is_a_string_prefix(open_blob: OpenBlob) -> None:
    """List: "the objects whose key begins with prefix"; not a directory name."""
    blob = open_blob()
    for key in KEYS_IN_ORDER:
        blob.create(key, b"")
    prefixes = {key[:end] for key in KEYS_IN_ORDER for end in range(len(key) + 1)}
    for prefix in sorted(prefixes | {"c", "a/b/", "a/z", "a.b/", "nothing/here"}):
        found = [info.key for info in blob.list(prefix)]
        assert found == [key for key in KEYS_IN_ORDER if key.startswith(prefix)], prefix


def check_list_is_linearizable(open_blob: OpenBlob) -> None:
    """What was created before a listing began is in it; what was deleted before is not."""
    blob, other = open_blob(), open_blob()
    for number in range(20):
        blob.create(f"n/{number:03}", b"")
        if number % 2:
            other.delete(f"n/{number - 1:03}")
        expected = [n for n in range(number + 1) if n % 2 or n == number]
        assert [int(info.key[2:]) for info in other.list()] == expected


def check_list_many(open_blob: OpenBlob) -> None:
    """More objects than one page of a store's answer."""
    blob = open_blob()
    keys = [f"many/{number:04}" for number in range(1_100)]
    with ThreadPoolExecutor(RACERS) as pool:
        assert all(pool.map(lambda key: blob.create(key, b""), keys))
    assert [info.key for info in blob.list("many/")] == keys
    assert [info.key for info in blob.list("many/10")] == keys[1_000:]


def check_keys_are_validated(open_blob: OpenBlob) -> None:
    """What is not a key is InvalidUsage everywhere, and nothing happens."""
    blob = open_blob()
    for key in NOT_KEYS:
        _assert_refused(lambda k=key: blob.create(k, b"x"))  # type: ignore[misc]
        _assert_refused(lambda k=key: blob.get(k))  # type: ignore[misc]
        _assert_refused(lambda k=key: blob.get_range(k, 0, 1))  # type: ignore[misc]
        _assert_refused(lambda k=key: blob.delete(k))  # type: ignore[misc]
        _assert_refused(lambda k=key: blob.local_path(k))  # type: ignore[misc]
    for prefix in NOT_PREFIXES:
        _assert_refused(lambda p=prefix: list(blob.list(p)))  # type: ignore[misc]
    assert list(blob.list()) == []


def check_local_path(open_blob: OpenBlob) -> None:
    """local_path: "a path under which the object can be memory-mapped, where there is one"."""
    blob = open_blob()
    assert blob.local_path("l/k") is None
    blob.create("l/k", b"mapped")
    path = blob.local_path("l/k")
    assert path is None or path.read_bytes() == b"mapped"
    assert blob.local_path("l") is None


def check_reopening_sees_everything(open_blob: OpenBlob) -> None:
    """What a closed blob has created or deleted, the next one finds so."""
    blob = open_blob()
    blob.create("kept/k", b"kept")
    blob.create("gone", b"gone")
    blob.delete("gone")
    blob.close()
    again = open_blob()
    assert again.get("kept/k") == b"kept"
    assert list(again.list()) == [ObjectInfo("kept/k", 4)]
    assert again.create("kept/k", b"x") is False
    again.close()


BLOB_CHECKS: Final[tuple[Callable[[OpenBlob], None], ...]] = (
    check_get_returns_the_whole_object,
    check_empty_object,
    check_range_at_the_edges,
    check_create_is_exclusive,
    check_create_race_has_one_winner,
    check_create_is_atomic,
    check_delete_is_idempotent,
    check_list_order,
    check_list_prefix_is_a_string_prefix,
    check_list_is_linearizable,
    check_list_many,
    check_keys_are_validated,
    check_local_path,
    check_reopening_sees_everything,
)


def _assert_refused(call: Callable[[], object]) -> None:
    try:
        returned = call()
    except InvalidUsage:
        return
    raise AssertionError(f"expected InvalidUsage, got {returned!r}")
