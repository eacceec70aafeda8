"""The pages: all of them are in the site, and what they link to is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
NAVIGATION = re.compile(r"^\s+- [^:]+: (\S+\.md)$", re.MULTILINE)


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md")
        if "template" not in page.name
        for target in LINK.findall(page.read_text("utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_the_site_has_the_pages_that_a_user_looks_for() -> None:
    named = NAVIGATION.findall((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert [name for name in named if not (ROOT / "docs" / name).is_file()] == []
    assert {"index.md", "quickstart.md", "operations.md", "first-run.md"} <= set(named)
