"""What the tests of the persist layer share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.persist.filled_place import fill


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A location on real files, with something committed."""
    fill(tmp_path / "location")
    return tmp_path / "location"
