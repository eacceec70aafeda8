"""Errors of the layers below that are the user's doing become errors with an SQLSTATE here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.adapter.errors import CannotBeMaintained, QueryRejected
from headwater.compute.ir.refusal import NotUnderstood, Refused
from headwater.compute.select import QueryFailed


@contextmanager
def users_mistakes() -> Iterator[None]:
    """Tell mistakes that the layers below found in a statement as such."""
    try:
        yield
    except (NotUnderstood, QueryFailed) as error:
        raise QueryRejected(str(error), error.condition, error.sqlstate) from error
    except Refused as error:
        raise CannotBeMaintained(
            f"{error.construct} cannot be kept in a view",
            detail=f"{error.reason}.",
            hint=error.hint or None,
        ) from error
