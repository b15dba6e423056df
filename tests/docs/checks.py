"""The table of all checks in docs/operations.md, made from the registry (bkbox/checks/registry.py):

python -m tests.docs.checks
"""

from __future__ import annotations

from bkbox.checks.registry import ABOUT, CHECKS
from tests.bench.peers.report import replace_between
from tests.docs.layers import CHECKOUT

PAGE = CHECKOUT / "docs/operations.md"
HEAD = """
| check | of | worst | what it finds | reads | what to do first | shown by |
|---|---|---|---|---|---|---|
"""


def page_with_checks(page: str) -> str:
    """The page as it ought to be: words in the place of the values that a finding fills in."""
    table = HEAD
    for each in CHECKS.values():
        remedy = str(each.remedy).replace("|", "\\|").replace(ABOUT, "FOLDER")
        views = ", ".join(f"`{view}`" for view in each.views)
        cells = (each.id, each.scope, each.severity, each.meaning, each.needs, f"`{remedy}`", views)
        table += f"| {' | '.join(cells)} |\n"
    return replace_between(page, "checks", table)


if __name__ == "__main__":
    PAGE.write_text(page_with_checks(PAGE.read_text()))
