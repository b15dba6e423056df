"""The table of tests in docs/security.md: every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


def test_every_test_that_is_named_is_there() -> None:
    table = (ROOT / "docs" / "security.md").read_text().partition("## Tests")[2]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 60
    for row in rows[1:]:
        named = NAMED.findall(row)
        assert named or "lint-imports" in row, row
        for file, test in named:
            assert re.search(rf"\bdef {test or 'test_'}", (ROOT / file).read_text()), (file, test)
