"""A whole query as it is stored: operators, the columns a reader sees, and under which meaning.

    decoded(encoded(plan)) == plan

The bytes are JSON with a version (``tests/unit/compute_ir/plan_v1.json``, ``plan_v2.json`` with
functions of the user's in it, code and all: ``catalyst/user_functions.py``, and ``plan_v3.json``
with types and table functions that are Spark's alone). A plan belongs to one
version of Spark and one set of the settings that decide what texts mean (``compute/session.py``):
its texts were checked under these. Under others it must not be run: :meth:`Plan.require` says so,
and the view is compiled and hydrated anew.

``root`` may have columns that are not shown, which only ``order`` needs (``SELECT a … ORDER BY
b``); :meth:`Plan.shown` is the query without them and without order: what a view maintains.

Kept by: this module. Relied on by: the catalog, which stores the bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from headwater.base.decoding import from_json
from headwater.compute.ir.expression import Column, SortKey
from headwater.compute.ir.node import Generate, Node, keep, relations, walk
from headwater.compute.ir.refusal import InvalidPlan, OtherMeaning

VERSION: Final = 1
WITH_FUNCTIONS: Final = 2
"""The version of a plan that calls functions of the user's: who knows only 1 cannot run it."""
WITH_FOREIGN: Final = 3
"""The version of a plan with types or table functions that are Spark's alone (:func:`version`)."""
_KNOWN: Final = (VERSION, WITH_FUNCTIONS, WITH_FOREIGN)

CALLED: Final = "headwater_udf_"
"""How the names begin under which texts call functions of the user's."""


def version(root: Node, functions: Collection[UserFunction]) -> int:
    """Return the version of a plan: the least that says what these need."""
    for node in walk(root):
        if any(column.is_foreign for column in node.columns):
            return WITH_FOREIGN
        if isinstance(node, Generate) and node.is_in_from_alone:
            return WITH_FOREIGN
    return WITH_FUNCTIONS if functions else VERSION


class OutputColumn(msgspec.Struct, frozen=True):
    """What a reader calls a column (``label``), and the plan's name of it."""

    label: str
    name: str


class UserFunction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A deterministic function of the user's, and all that it takes to call it.

    ``name`` is the query's name of it; the texts have :attr:`called`.
    """

    name: str
    fingerprint: str
    """Of everything below: functions of one fingerprint are one function."""
    command: bytes = b""
    """Its code, pickled as Spark's workers want it."""
    returns: str = ""
    """Its type, as Spark's JSON."""
    eval_type: int = 0
    """Spark's number of the way it is called."""
    python: str = ""
    """The Python that the code is of: major and minor."""

    @property
    def called(self) -> str:
        """The name in the plan's texts; nothing else has it."""
        return CALLED + self.fingerprint


def as_named(text: str, functions: Iterable[UserFunction]) -> str:
    """Return a text for people: with the functions called as the query calls them."""
    for function in functions:
        text = text.replace(function.called, function.name)
    return text


class Plan(msgspec.Struct, frozen=True):
    """A query."""

    version: int
    spark_version: str
    settings: dict[str, str]
    root: Node
    outputs: tuple[OutputColumn, ...]
    order: tuple[SortKey, ...] = ()
    """In which order an ad-hoc query shows its rows; a view has none."""
    functions: tuple[UserFunction, ...] = ()

    def __post_init__(self) -> None:
        known = {column.name for column in self.root.columns}
        used = {output.name for output in self.outputs}
        used.update(name for key in self.order for name in key.expression.columns)
        if not used <= known:
            raise InvalidPlan(f"the plan shows {sorted(used - known)}, which it does not have")

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns a reader sees, under the plan's names."""
        known = {column.name: column for column in self.root.columns}
        return tuple(known[output.name] for output in self.outputs)

    @property
    def relations(self) -> tuple[str, ...]:
        """The collections it reads."""
        return relations(self.root)

    def shown(self) -> Node:
        """Return the operators whose rows are the query's, without what only its order needs.

        A column that is shown twice is there once; ``outputs`` has it twice.
        """
        return keep(self.root, dict.fromkeys(output.name for output in self.outputs))

    def require(self, spark_version: str, settings: Mapping[str, str]) -> None:
        """Raise unless the plan's texts mean here what they meant when they were checked."""
        if self.spark_version != spark_version:
            raise OtherMeaning(
                f"the plan is of Spark {self.spark_version}, this is {spark_version}"
            )
        for key, value in self.settings.items():
            if settings.get(key) != value:
                raise OtherMeaning(
                    f"the plan has {key} = {value}, this session {settings.get(key)}"
                )


class _Version(msgspec.Struct):
    version: int


def encoded(plan: Plan) -> bytes:
    """Return the bytes of a plan; equal plans have equal bytes."""
    return msgspec.json.encode(plan, order="deterministic")


def decoded(data: bytes) -> Plan:
    """Return the plan that these bytes hold."""
    try:
        found = from_json(data, _Version).version
        if found not in _KNOWN:
            known = ", ".join(map(str, _KNOWN))
            raise InvalidPlan(f"a plan of version {found}; this program knows {known}")
        return from_json(data, Plan)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InvalidPlan(f"the bytes hold no plan: {error}") from error
