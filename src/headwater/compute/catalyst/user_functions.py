"""Functions of the user's, in Python: part of the plan that calls them, code and all.

A plan keeps of each function what Catalyst has of it: the pickled code, the type it returns, how it
is called (row by row, by Arrow batches, by pandas series) and the Python that pickled it. Its texts
call it by a name that *is* that content:

    called = headwater_udf_<digest of code, types and Python>

so it clashes with no other function, whatever the user, another view or another session calls by
the name that the query has; and a function that is registered anew under that name changes no view.

**By value.** A function of a module is pickled as a reference to the module, so its meaning would
be what the module says some day, if it is there at all. :func:`taken` pickles it anew with all code
that is not installed (``site-packages``) or Python's own; where that is not possible the reference
stays, and the module has to be there.

**One Python.** Code is pickled as bytecode of one minor version. Under another one :func:`register`
raises :class:`OtherMeaning`, which says what to do.

A function is deterministic if its author does not say otherwise; that is believed. One that is
called by batches must give each row the same value whatever rows are beside it.

**By rows or by batches.** A function of one row can be called for what changed
(:func:`register_called`, ``called.py``). One of Arrow batches or pandas series may look at the rows
beside it, and does so without its author's knowing: where one value is NULL, pandas makes floats of
a whole column. So a view that calls one is recomputed.

**It raises.** :func:`raised` tells what a row caused from what happened around it; which errors are
a row's says ``called.py``.

Kept by: this module and ``java/UserFunctions.java``. Relied on by: ``translate.py``, which makes
plans, and ``render.py``, which runs them.
"""

from __future__ import annotations

import builtins
import json
import pickle
import re
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import dropwhile
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import msgspec

from headwater.compute.catalyst.called import OF_VALUES, OUR_FRAME, Called
from headwater.compute.catalyst.jvm import front_end
from headwater.compute.catalyst.query_session import query_session
from headwater.compute.dataflow.passage_calls import ANSWERING, RAISED, VALUE
from headwater.compute.ir.plan import UserFunction
from headwater.compute.ir.refusal import OtherMeaning

THIS_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"

_OURS: Final = frozenset({"headwater", "pyspark"})
_pickling: Final = threading.Lock()


def session_of(session: Any) -> Any:
    """Return a new session of the same Spark that knows the functions registered in this one."""
    made = query_session(session)
    adopted = front_end(session).adopt(session._jsparkSession, made._jsparkSession)
    made._headwater_functions = bool(len(adopted))
    return made


def has_functions(session: Any) -> bool:
    """Whether a session of :func:`session_of` knows functions that are not Spark's own."""
    return bool(session._headwater_functions)


def register(session: Any, functions: Iterable[UserFunction], *, by_name: bool = False) -> None:
    """Make the functions of a plan known to a session, as its texts call them.

    ``by_name``: as the query does that the plan was made of.
    """
    for function in functions:
        _require_this_python(function)
        _register(session, function.name if by_name else function.called, function)


def register_called(session: Any, functions: Iterable[UserFunction]) -> None:
    """Make functions known as steps call them: with what they raise, for rows that ask."""
    for function in functions:
        _require_this_python(function)
        if is_by_row(function):
            _register(session, ANSWERING + function.fingerprint, _checked(function))


def is_by_row(function: UserFunction) -> bool:
    """Whether a function is called with the values of one row, and sees no other."""
    from pyspark.util import PythonEvalType

    by_row = (PythonEvalType.SQL_BATCHED_UDF, PythonEvalType.SQL_ARROW_BATCHED_UDF)
    return function.eval_type in by_row


def _checked(function: UserFunction) -> UserFunction:
    """Return the function that a step calls in its place."""
    from pyspark.serializers import CloudPickleSerializer
    from pyspark.sql.types import StructType

    fields = [(VALUE, json.loads(function.returns)), (RAISED, "string")]
    made = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields]
    returns = StructType.fromJson({"type": "struct", "fields": made})
    called = Called(function.name, function.command)
    command = CloudPickleSerializer().dumps((called, returns))
    return msgspec.structs.replace(function, command=bytes(command), returns=returns.json())


def _require_this_python(function: UserFunction) -> None:
    if function.python != THIS_PYTHON:
        raise OtherMeaning(
            f"the function {function.name}() is code of Python {function.python}, which "
            f"Python {THIS_PYTHON} cannot run"
        )


def _register(session: Any, name: str, function: UserFunction) -> None:
    session._jsparkSession.udf().registerPython(name, _made(session, name, function))


def _made(session: Any, name: str, function: UserFunction) -> Any:
    context = session.sparkContext
    jvm = context._jvm
    code = jvm.SimplePythonFunction(
        bytearray(function.command),
        context.environment,
        context._python_includes,
        context.pythonExec,
        context.pythonVer,
        [],
        context._javaAccumulator,
    )
    returns = session._jsparkSession.parseDataType(function.returns)
    kind = jvm.org.apache.spark.sql.execution.python.UserDefinedPythonFunction
    return kind(name, code, returns, function.eval_type, True, [], [])


# ---- what they raise --------------------------------------------------------------------------

CONDITION: Final = "PYTHON_EXCEPTION"
"""Spark's condition where a worker raised."""

_FRAME: Final = re.compile(r'  File ".*", line \d+')
_RAISED: Final = re.compile(r"(\w+)(?:: .*)?", re.DOTALL)


class Raised(NamedTuple):
    """An exception in a worker; ``of_row`` if the row that was looked at is to blame."""

    text: str
    of_row: bool


def raised(traceback: str) -> Raised:
    """Return what a worker's traceback says.

    >>> raised('Traceback\\n  File "a.py", line 1, in f\\nValueError: no number\\n')
    Raised(text='ValueError: no number', of_row=True)
    >>> raised('Traceback\\n  File "a.py", line 1, in f\\nFileNotFoundError: x\\n').of_row
    False
    """
    lines = traceback.rstrip().splitlines()
    frames = [number for number, line in enumerate(lines) if _FRAME.match(line)]
    # Behind the last frame's own lines; those of a message may begin with spaces, too.
    behind = lines[frames[-1] + 1 :] if frames else lines
    text = "\n".join(dropwhile(lambda line: line.startswith("    "), behind))
    found = _RAISED.fullmatch(text)
    kind = getattr(builtins, found[1], None) if found is not None else None
    of_values = isinstance(kind, type) and issubclass(kind, OF_VALUES)
    # Reading what is stored happens in workers too; what fails there is no row's fault.
    return Raised(text, of_values and OUR_FRAME.search(traceback) is None)


# ---- taking them from a query -----------------------------------------------------------------


def taken(raw: Mapping[str, Any]) -> UserFunction:
    """Return a function that the front end found, as it is stored."""
    command = _by_value(raw["command"])
    content = sha256(command)
    content.update(f"{raw['returns']} {raw['eval_type']} {raw['python']}".encode())
    return UserFunction(
        raw["name"],
        content.hexdigest()[:32],
        command,
        raw["returns"],
        raw["eval_type"],
        raw["python"],
    )


def _by_value(command: bytes) -> bytes:
    """Return the same code without references to modules that may change or go."""
    from pyspark import cloudpickle

    try:
        with _pickling, _modules_by_value():
            # Pickled by this very process, a moment ago.
            return bytes(cloudpickle.dumps(pickle.loads(command)))  # noqa: S301
    except Exception:  # noqa: BLE001  # anything may refuse to be pickled; it works as it is
        return command


@contextmanager
def _modules_by_value() -> Iterator[None]:
    from pyspark import cloudpickle

    before = cloudpickle.list_registry_pickle_by_value()
    found = [module for name, module in list(sys.modules.items()) if _is_users(name, module)]
    modules = [module for module in found if module.__name__ not in before]
    try:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _is_users(name: str, module: Any) -> bool:
    """Whether a module is code of the user's: from a file, and not of an installation."""
    if not isinstance(module, ModuleType) or module.__name__ != name:
        return False
    if name == "__main__" or name.partition(".")[0] in _OURS:
        return False
    file = getattr(module, "__file__", None)
    return file is not None and not any(Path(file).is_relative_to(root) for root in _installed())


def _installed() -> Iterator[Path]:
    for what in ("stdlib", "platstdlib", "purelib", "platlib"):
        yield Path(sysconfig.get_path(what))
