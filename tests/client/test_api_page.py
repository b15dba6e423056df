"""docs/api.md says what the docstrings say, and everything public has one."""

from __future__ import annotations

import inspect
import re

from bkbox import errors
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


def test_every_error_is_listed() -> None:
    text = PAGE.read_text()
    for name, error in vars(errors).items():
        if inspect.isclass(error) and issubclass(error, errors.BkboxError):
            assert re.search(rf"\b{name}\b", text), f"docs/api.md does not list {name}"
            assert inspect.getdoc(error), name
