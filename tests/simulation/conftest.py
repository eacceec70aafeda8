"""Everything here is a simulation: it takes its time, and runs beside the tests of servers."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this directory."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.simulation)
