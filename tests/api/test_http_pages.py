"""docs/http.md, docs/openapi.json and docs/status.schema.json are what the code says; and the table of routes is one
that can be described."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.api.httppages import PAGES, table


@pytest.mark.parametrize("path", PAGES, ids=lambda path: Path(path).name)
def test_the_page_is_up_to_date(path: Path) -> None:
    assert path.read_text() == PAGES[path](), "run: python -m tests.api.httppages"


def test_every_route_says_what_it_does_and_answers() -> None:
    seen = set()
    for route in table():
        assert (route.method, route.path) not in seen
        seen.add((route.method, route.path))
        assert route.summary.endswith("."), route.path
        assert route.returns is not object or route.media != "application/json" or route.java


def test_reading_and_changing_are_apart() -> None:
    document = json.loads(next(path for path in PAGES if path.name == "openapi.json").read_text())
    for path, operations in document["paths"].items():
        assert "requestBody" not in operations.get("get", {}), path
