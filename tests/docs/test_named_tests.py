"""The tests that documents name are there: a claim that names one stays shown by it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_each_is_there() -> None:
    missing = [
        f"{page.name}: {path}::{name}"
        for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
        for path, name in NAMED.findall(page.read_text())
        if not (ROOT / path).is_file() or f"def {name}(" not in (ROOT / path).read_text()
    ]
    assert not missing
    assert NAMED.search((ROOT / "README.md").read_text())
