"""The pictures of the layers are those that ``lint-imports`` enforces."""

from __future__ import annotations

from tests.docs.layers import PAGE, page_with_pictures


def test_the_pictures_of_the_layers_are_those_of_the_contracts() -> None:
    page = PAGE.read_text()
    assert page_with_pictures(page) == page, "python -m tests.docs.layers makes them anew"
