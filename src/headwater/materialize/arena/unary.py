"""Spec, Validate and Apply, between the arena protocol and the core: what each field becomes.

What the arena protocol has no field for is left out on the way there, and absent on the way back:
what was applied before (``last_materialization``), a driver's state at Apply, folded names. The
constraint INCOMPATIBLE was called UNSATISFIABLE.
"""

from __future__ import annotations

from typing import Final

from headwater.materialize.arena import messages as a
from headwater.materialize.protocol import messages as m
from headwater.materialize.protocol import specs as s
from headwater.materialize.selection import constraints_of

METHODS: Final = {
    m.Spec: ("/materialize.Driver/Spec", a.SpecRequest, a.SpecResponse),
    m.Validate: ("/materialize.Driver/Validate", a.ValidateRequest, a.ValidateResponse),
    m.Apply: ("/materialize.Driver/Apply", a.ApplyRequest, a.ApplyResponse),
}
"""Of each request: the method, what is said, what is answered."""

UnaryRequest = a.SpecRequest | a.ValidateRequest | a.ApplyRequest
UnaryResponse = a.SpecResponse | a.ValidateResponse | a.ApplyResponse

_FIRST: Final = s.ConstraintType.FIELD_REQUIRED
"""Where the numbers of constraints begin in the core; in the arena protocol at 0."""


def to_arena(request: m.Unary) -> UnaryRequest:
    """Return what is said to a driver of the arena protocol."""
    match request:
        case m.Spec():
            return a.SpecRequest(request.connector_type, request.config_json)
        case m.Validate():
            return a.ValidateRequest(
                request.name,
                request.connector_type,
                request.config_json,
                tuple(
                    a.ValidateRequestBinding(
                        binding.resource_config_json,
                        binding.collection,
                        binding.field_config_json_map,
                    )
                    for binding in request.bindings
                ),
            )
        case m.Apply():
            return a.ApplyRequest(request.materialization, request.version, request.dry_run)


def from_arena(request: UnaryRequest) -> m.Unary:
    """Return what a runtime of the arena protocol says to us."""
    match request:
        case a.SpecRequest():
            return m.Spec(request.endpoint_type, request.endpoint_spec_json)
        case a.ValidateRequest():
            return m.Validate(
                request.materialization,
                request.endpoint_type,
                request.endpoint_spec_json,
                tuple(
                    m.ValidateBinding(
                        binding.resource_spec_json, binding.collection, binding.field_config_json
                    )
                    for binding in request.bindings
                ),
            )
        case a.ApplyRequest():
            return m.Apply(request.materialization, request.version, request.dry_run)


def answer_from_arena(response: UnaryResponse) -> m.UnaryResponse:
    """Return what a driver of the arena protocol answered."""
    match response:
        case a.SpecResponse():
            return m.Specified(
                m.PROTOCOL,
                response.endpoint_spec_schema_json,
                response.resource_spec_schema_json,
                response.documentation_url,
            )
        case a.ValidateResponse():
            return m.Validated(tuple(map(_binding_from_arena, response.bindings)))
        case a.ApplyResponse():
            return m.Applied(response.action_description)


def _binding_from_arena(binding: a.ValidateResponseBinding) -> m.ValidatedBinding:
    return m.ValidatedBinding(
        constraints=tuple(
            (field, s.Constraint(s.ConstraintType(_number(found)), found.reason))
            for field, found in binding.constraints
        ),
        resource_path=binding.resource_path,
        delta_updates=binding.delta_updates,
        holds_data=binding.holds_data or None,  # Another's driver does not say.
    )


def _number(constraint: a.Constraint) -> int:
    if constraint.type is a.ConstraintType.UNSATISFIABLE:
        return s.ConstraintType.INCOMPATIBLE
    return constraint.type + _FIRST


def answer_to_arena(response: m.UnaryResponse) -> UnaryResponse:
    """Return what a driver of ours answers, in the arena protocol."""
    match response:
        case m.Specified():
            return a.SpecResponse(
                response.config_schema_json,
                response.resource_config_schema_json,
                response.documentation_url,
            )
        case m.Validated():
            return a.ValidateResponse(tuple(map(_binding_to_arena, response.bindings)))
        case m.Applied():
            return a.ApplyResponse(response.action_description)


def _binding_to_arena(binding: m.ValidatedBinding) -> a.ValidateResponseBinding:
    return a.ValidateResponseBinding(
        constraints=tuple(
            (field, a.Constraint(_type(found.type), found.reason))
            for field, found in sorted(constraints_of(binding))
        ),
        resource_path=binding.resource_path,
        delta_updates=binding.delta_updates,
        holds_data=bool(binding.holds_data),
    )


def _type(kind: s.ConstraintType) -> a.ConstraintType:
    named = _FIRST <= kind < s.ConstraintType.INCOMPATIBLE
    return a.ConstraintType(kind - _FIRST) if named else a.ConstraintType.UNSATISFIABLE
