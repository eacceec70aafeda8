"""What a statement is to the wire before it runs: does it answer with rows, does it only read.

Kept by: this module. Relied on by: ``execution.py``.
"""

from __future__ import annotations

from typing import TypeGuard

from headwater.adapter.pgwire.wire_statements import AnyStatement, WireStatement
from headwater.adapter.sql import statements


def has_rows(statement: AnyStatement) -> bool:
    """Whether a statement of the session answers with rows."""
    return not isinstance(statement, WireStatement) and statements.returns_rows(statement)


def asks(statement: AnyStatement) -> TypeGuard[statements.ForSession]:
    """Whether the session may know the columns of its rows."""
    rows = statements.Select | statements.Insert | statements.Update | statements.Delete
    return isinstance(statement, rows) and statements.returns_rows(statement)


def reads(statement: AnyStatement) -> bool:
    """Whether a statement has rows and changes nothing."""
    return has_rows(statement) and getattr(statement, "returning", None) is None


def is_left(statement: AnyStatement) -> bool:
    """Whether it ends with its client: it changes nothing, or waits for a time before it does."""
    return reads(statement) or getattr(statement, "as_of", None) is not None
