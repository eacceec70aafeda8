"""What a step makes of a function of the user's: its answers, and what it raises."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import types
from pyspark.sql.types import StringType

from headwater.compute.catalyst.called import Called, FunctionFailed, plain


def _called(function: Callable[..., Any]) -> Called:
    command = CloudPickleSerializer().dumps((function, StringType()))
    called = pickle.loads(pickle.dumps(Called("mine", bytes(command))))
    assert isinstance(called, Called)
    return called


def test_a_row_that_asks_has_its_answer() -> None:
    called = _called(lambda x, *, by=2: x * by)
    assert called(True, 3) == (6, None)
    assert called(True, 3, by=5) == (15, None)
    assert _called(lambda: None)(True) == (None, None)


def test_a_row_that_does_not_ask_calls_nothing() -> None:
    assert _called(lambda _: 1 / 0)(False, None) is None


@pytest.mark.parametrize(
    ("raises", "said"),
    [
        (lambda: int("x"), "ValueError: invalid literal for int() with base 10: 'x'"),
        (lambda: dict[str, int]()["k"], "KeyError: 'k'"),
        (lambda: len(cast("str", 1)), "TypeError: object of type 'int' has no len()"),
        (lambda: 1 // 0, "ZeroDivisionError: integer division or modulo by zero"),
        (b"\xff".decode, None),
    ],
)
def test_an_error_of_values_is_the_rows(raises: Callable[[], Any], said: str | None) -> None:
    found = _called(raises)(True)
    assert found is not None
    value, text = found
    assert value is None
    assert text == said if said is not None else text.startswith("UnicodeDecodeError: ")


def test_an_error_says_the_same_whenever_it_is_raised() -> None:
    """Else the error of a row that goes would not be the one of the row that came."""

    class Thing:
        pass

    def raising() -> None:
        kept.append(Thing())
        raise ValueError(f"no {kept[-1]}")

    kept: list[Thing] = []
    called = _called(raising)
    first, second = called(True), called(True)
    assert first == second
    assert first is not None
    assert "Thing object at 0x…" in first[1]


def _own() -> None:
    class Own(ValueError):
        pass

    raise Own("x")


def _of_pyspark() -> None:
    types.StructType.fromJson({})  # It raises further in than the user's own code.


@pytest.mark.parametrize(
    ("raises", "kind"),
    [
        (lambda: open("/no/such/file"), "FileNotFoundError"),  # noqa: PTH123, SIM115
        (lambda: __import__("no_such_module"), "ModuleNotFoundError"),
        (_own, "Own"),
        (_of_pyspark, "KeyError"),
    ],
)
def test_what_may_be_the_machines_is_no_answer(raises: Callable[[], Any], kind: str) -> None:
    with pytest.raises(FunctionFailed, match=rf"mine\(\) raised .*{kind}.*ValueError"):
        _called(raises)(True)


def test_a_message_is_told_without_our_class() -> None:
    name = f"{FunctionFailed.__module__}.{FunctionFailed.__qualname__}"
    assert plain(f"{name}: f() raised OSError") == "f() raised OSError"
    assert plain("f() raised OSError") == "f() raised OSError"
