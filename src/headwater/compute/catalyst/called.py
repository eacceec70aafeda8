"""A function of the user's as a step calls it: for rows that ask, and what it raised is data.

    Called(f)(asked, x, …)  =  (f(x, …), NULL)        for a row that asks
                            =  (NULL, "ValueError: …")  f raises an error of values
                            =  NULL                     for any other row: f is not called
                            raises FunctionFailed       f raises anything else

Rows of all lanes of a step pass the function, because Python cannot be called in a branch of an
expression; only those that ask are its own. An exception of a class that says that a value is to
blame is one of the row, as a division by zero in SQL is; it says the same whenever it is raised, so
that it goes with its row. Any other may be the machine's (no module, no file, no memory) and would
be gone tomorrow: it is never taken for an answer.

Travels to the tasks, with the pickled function unread: what it needs is loaded where it is called.

Kept by: ``tests/unit/compute/test_called.py``. Relied on by: ``user_functions.py``, which
registers it; ``stepper.py``, which says why a view stalls.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

OF_VALUES: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What Python raises of values; of these classes, and of Python's own below them."""

RAISE_INSTEAD: Final = "; if a row is to blame let it raise ValueError: the view then has an error"
_ADDRESS: Final = re.compile(r"\bat 0x[0-9a-fA-F]+")
OUR_FRAME: Final = re.compile(r'File ".*[/\\](?:headwater|pyspark)[/\\]')


class FunctionFailed(Exception):
    """A function of the user's raised what no row is to blame for."""


class Called:
    """A function of one row; ``name`` is what the query calls it."""

    def __init__(self, name: str, command: bytes) -> None:
        self._name, self._command = name, command

    @cached_property
    def _function(self) -> Callable[..., Any]:
        from pyspark.serializers import CloudPickleSerializer

        function: Callable[..., Any] = CloudPickleSerializer().loads(self._command)[0]
        return function

    def __call__(self, asked: bool, /, *arguments: Any, **named: Any) -> tuple[Any, Any] | None:
        """Return the answer, or what was raised, if the row asks."""
        if not asked:
            return None
        try:
            return self._function(*arguments, **named), None
        except Exception as error:
            text = "".join(traceback.format_exception_only(error)).rstrip()
            if not _is_of_values(error):
                raise FunctionFailed(f"{self._name}() raised {text}{RAISE_INSTEAD}") from error
            text = _ADDRESS.sub("at 0x…", text)
            return None, text.encode(errors="backslashreplace").decode()


def _is_of_values(error: Exception) -> bool:
    if type(error).__module__ != "builtins" or not isinstance(error, OF_VALUES):
        return False
    # The first frame is ours; what pyspark raises further in is no row's fault.
    frames = error.__traceback__.tb_next if error.__traceback__ is not None else None
    return OUR_FRAME.search("".join(traceback.format_tb(frames))) is None


_FAILED: Final = f"{FunctionFailed.__module__}.{FunctionFailed.__qualname__}: "


def plain(message: str) -> str:
    """Return a message without the class that a failed function is raised as.

    >>> plain("headwater.compute.catalyst.called.FunctionFailed: f() raised OSError")
    'f() raised OSError'
    """
    return message.removeprefix(_FAILED)
