"""What a worker's traceback says, and code that is taken with all that it refers to."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import cloudpickle

from headwater.compute.catalyst import user_functions
from headwater.compute.catalyst.user_functions import Raised, raised

FRAME = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g(x)\n'


@pytest.mark.parametrize(
    ("traceback", "expected"),
    [
        (FRAME + "ValueError: bad\n", Raised("ValueError: bad", True)),
        (FRAME + "KeyError: 'a: b'\n", Raised("KeyError: 'a: b'", True)),
        (FRAME + "AssertionError\n", Raised("AssertionError", True)),
        (FRAME + "ValueError: two\nlines\n", Raised("ValueError: two\nlines", True)),
        (FRAME + "UnicodeDecodeError: x\n", Raised("UnicodeDecodeError: x", True)),
        (FRAME + "MemoryError\n", Raised("MemoryError", False)),
        (FRAME + "ModuleNotFoundError: no m\n", Raised("ModuleNotFoundError: no m", False)),
        (FRAME + "TimeoutError: late\n", Raised("TimeoutError: late", False)),
        (FRAME + "mine.ValueError: bad\n", Raised("mine.ValueError: bad", False)),
        (FRAME + "print: bad\n", Raised("print: bad", False)),
        ("", Raised("", False)),
        (
            FRAME.replace("a.py", "lib/headwater/persist/part.py") + "ValueError: bad\n",
            Raised("ValueError: bad", False),
        ),
        (
            FRAME
            + "KeyError: 1\n\nDuring handling of the above exception, another exception occurred:"
            + f"\n\n{FRAME}ValueError: bad\n",
            Raised("ValueError: bad", True),
        ),
    ],
)
def test_a_row_is_blamed_for_errors_of_values_only(traceback: str, expected: Raised) -> None:
    assert raised(traceback) == expected


def _imported(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(path / f"{name}.py")
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_code_is_taken_without_the_modules_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = _imported(tmp_path, "rates", monkeypatch)
    exec("BASE = 7\ndef rate(k):\n    return BASE * k\n", rates.__dict__)
    pricing = _imported(tmp_path, "pricing", monkeypatch)
    text = "import math\nfrom rates import rate\ndef price(k):\n    return math.floor(rate(k))\n"
    exec(text, pricing.__dict__)
    referring = cloudpickle.dumps((pricing.price, None))
    raw = {"name": "price", "returns": '"long"', "eval_type": 100, "python": "3.11"}
    taken = user_functions.taken({**raw, "command": referring})
    assert b"math" in taken.command, "what is installed stays a reference"
    assert cloudpickle.list_registry_pickle_by_value() == set()
    program = "import pickle, sys; f, _ = pickle.load(sys.stdin.buffer); print(f(3))"
    for command, answer in ((taken.command, b"21"), (referring, b"")):
        ended = subprocess.run(
            [sys.executable, "-c", program], input=command, capture_output=True, check=False
        )
        assert ended.stdout.strip() == answer, ended.stderr
    assert pickle.loads(taken.command)[0](3) == 21
    again = user_functions.taken({**raw, "command": referring})
    assert again.fingerprint == taken.fingerprint
    rates.BASE = 8  # type: ignore[attr-defined]
    changed = user_functions.taken({**raw, "command": referring})
    assert changed.fingerprint != taken.fingerprint, "another function, though the same reference"


def test_what_cannot_be_pickled_anew_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = _imported(tmp_path, "locking", monkeypatch)
    exec("import threading\nL = threading.Lock()\ndef f(x):\n    return L and x\n", module.__dict__)
    referring = cloudpickle.dumps((module.f, None))
    raw = {"name": "f", "returns": '"long"', "eval_type": 100, "python": "3.11"}
    assert user_functions.taken({**raw, "command": referring}).command == referring
