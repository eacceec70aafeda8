"""``python -m headwater`` is the command ``headwater``."""

from __future__ import annotations

from headwater.cli.main import app

app()
