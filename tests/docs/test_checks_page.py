"""The table of checks is that of the registry; tests/cli/test_pages.py runs over the commands in it."""

from __future__ import annotations

from tests.docs.checks import PAGE, page_with_checks


def test_the_table_is_that_of_the_registry() -> None:
    page = PAGE.read_text()
    assert page_with_checks(page) == page, "python -m tests.docs.checks makes it anew"
