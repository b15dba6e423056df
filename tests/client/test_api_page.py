"""docs/api.md says what the docstrings say, and everything public has one."""

from __future__ import annotations

import inspect

from tests.client.apipage import PAGE, SECTIONS, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.client.apipage"


def test_everything_public_is_described() -> None:
    for _, things in SECTIONS.values():
        for thing in filter(inspect.isclass, things):
            assert inspect.getdoc(thing), thing
            for name, member in vars(thing).items():
                if (
                    inspect.isfunction(member)
                    and not name.startswith("_")
                    and "client" in member.__module__
                ):
                    assert inspect.getdoc(member), f"{thing.__name__}.{name}"
