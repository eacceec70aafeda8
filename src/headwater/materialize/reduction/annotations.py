"""Strategies from a JSON schema: which apply to a document depends on the document.

The keyword ``reduce`` is an annotation: validation collects it wherever a branch of the schema that
holds it was valid. So ``oneOf``, ``if`` and ``$ref`` choose strategies, and a document that says
``{"_meta": {"op": "d"}}`` can say by it that it deletes.

Two different strategies that reach one location are an error; the same twice is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from headwater.base.errors import InvalidUsage
from headwater.materialize.reduction.reduce import Strategies
from headwater.materialize.reduction.strategy import DEFAULT, Strategy, parse
from headwater.materialize.reduction.value import Json

_KEYWORD = "reduce"


class InvalidSchema(InvalidUsage):
    """A collection's schema that is none."""


class InvalidDocument(InvalidUsage):
    """A document that its collection's schema refuses."""


class ConflictingStrategies(InvalidUsage):
    """Two strategies for one location of one document."""

    def __init__(self, pointer: str, first: Strategy, second: Strategy) -> None:
        super().__init__(f"at {pointer or 'the root'}: the schema demands {first} and {second}")


class Annotator:
    """The strategies that a schema gives to documents."""

    def __init__(self, schema: Json) -> None:
        self._check(schema)
        try:
            self._validator = jsonschema_rs.validator_for(schema)
        except (jsonschema_rs.ValidationError, ValueError) as error:
            raise InvalidSchema(f"no JSON schema: {error}") from error

    def strategies(self, document: Json) -> Strategies:
        """Return the strategies of a document; raise if the schema refuses it."""
        evaluation = self._validator.evaluate(document)
        if not evaluation.valid:
            reasons = "; ".join(
                f"at {error['instanceLocation'] or 'the root'}: {error['error']}"
                for error in evaluation.errors()
            )
            raise InvalidDocument(f"the collection's schema refuses a document: {reasons}")
        found: dict[str, Strategy] = {}
        for annotation in evaluation.annotations():
            said = annotation["annotations"]
            if isinstance(said, Mapping) and _KEYWORD in said:
                _add(found, annotation["instanceLocation"], parse(said[_KEYWORD]))
        return {pointer: strategy for pointer, strategy in found.items() if strategy != DEFAULT}

    def _check(self, schema: Any) -> None:
        """Parse every strategy once, so that a mistake is found before the first document."""
        if isinstance(schema, dict):
            for name, value in schema.items():
                if name == _KEYWORD and isinstance(value, dict) and "strategy" in value:
                    parse(value)
                else:
                    self._check(value)
        elif isinstance(schema, list):
            for item in schema:
                self._check(item)


def _add(found: dict[str, Strategy], pointer: str, strategy: Strategy) -> None:
    if found.setdefault(pointer, strategy) != strategy:
        raise ConflictingStrategies(pointer, found[pointer], strategy)
