"""Threads that decode by a type for the first time, all at once."""

from __future__ import annotations

import subprocess
import sys

from headwater.base.decoding import converted, from_json, from_msgpack

# A process of its own: where this goes wrong, it dies.
PROGRAM = """
import sys, threading, types
import msgspec
from headwater.base.decoding import from_json

sys.setswitchinterval(1e-6)
made = types.ModuleType("made")
sys.modules["made"] = made
DEFINED = '''
class Inner(msgspec.Struct, tag="inner"):
    x: int
    y: "tuple[str, ...]" = ()
class Other(msgspec.Struct, tag="other"):
    z: "dict[str, int]" = {}
class Outer(msgspec.Struct):
    one: "Inner | Other"
    many: "tuple[Inner, ...]" = ()
'''
DATA = b'{"one": {"type": "inner", "x": 1}, "many": [{"type": "inner", "x": 2}]}'
for _ in range(60):
    made.__dict__.update(__name__="made", msgspec=msgspec)
    exec(DEFINED, made.__dict__)
    together = threading.Barrier(4)
    def decode(type_=made.Outer):
        together.wait()
        assert from_json(DATA, type_).many[0].x == 2
    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print("all of them")
"""


def test_the_first_threads_of_a_type_do_not_see_half_of_it() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=300
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "all of them\n", "")


def test_values_come_back() -> None:
    assert from_json("[1, 2]", tuple[int, ...]) == (1, 2)
    assert from_msgpack(b"\x92\x01\x02", tuple[int, ...]) == (1, 2)
    assert converted([1, 2], tuple[int, ...]) == (1, 2)
