"""The table of all checks in docs/operations.md, made from the registry (bkbox/checks/registry.py):

python -m tests.docs.checks
"""

from __future__ import annotations

import re

from bkbox.checks.registry import CHECKS
from tests.bench.peers.report import replace_between
from tests.docs.layers import CHECKOUT

PAGE = CHECKOUT / "docs/operations.md"
PLACES = {"config": "FILE", "about": "FOLDER", "metadata": "URI"}


def remedy(template: str) -> str:
    """With words in the place of the values that a finding fills in."""
    return re.sub(r"{(\w+)}", lambda match: PLACES.get(match[1], match[1].upper()), template)


def page_with_checks(page: str) -> str:
    """The page as it ought to be."""
    rows = [
        "| check | of | worst | what it finds | looks at | what to do first | shown by |",
        "|---|---|---|---|---|---|---|",
    ]
    for check in CHECKS.values():
        command = remedy(check.remedy).replace("|", "\\|")
        cells = (
            *(check.id, check.scope, check.severity, check.meaning, check.needs),
            f"`{command}`",
            ", ".join(f"`{view}`" for view in check.views),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return replace_between(page, "checks", "\n".join(["", *rows, ""]))


if __name__ == "__main__":
    PAGE.write_text(page_with_checks(PAGE.read_text()))
