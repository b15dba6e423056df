"""The files, functions and anchors that documents name are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "examples/README.md",
]

_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|pxd|h|toml|md|lock|json|yml))(?:::([\w.]+))?`")
"""``path`` or ``path::Class.name``, with a folder at least; counted from the checkout, or from ``bkbox`` in it."""
_LINK = re.compile(r"(?<!!)\[[^][]*\]\(([^()\s]+)\)")
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_DEFINITION = r"^\s*(?:(?:async )?def |class |cdef class )?{name}\b\s*[(:=]"


def _problem(path: str, name: str) -> str:
    """What is wrong with a path and what it is to define; empty if both are there."""
    file = next((each for each in (ROOT / path, ROOT / "bkbox" / path) if each.is_file()), None)
    if file is None:
        return "no such file"
    text = file.read_text()
    missing = [
        part
        for part in filter(None, name.split("."))
        if not re.search(_DEFINITION.format(name=re.escape(part)), text, re.MULTILINE)
    ]
    return f"no {', '.join(missing)} in it" if missing else ""


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_file_and_function_that_a_map_names_is_there(page: str) -> None:
    named = _FILE.findall((ROOT / page).read_text())
    wrong = [f"{path}::{name}: {what}" for path, name in named if (what := _problem(path, name))]
    assert wrong == []
    assert len(named) > 30


def test_every_folder_of_tests_that_is_to_be_run_is_there() -> None:
    named = re.findall(r"\btests/[\w/.]*\w", (ROOT / "CONTRIBUTING.md").read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert len(named) > 50


def test_what_is_not_there_is_noticed() -> None:
    assert _FILE.findall("`bkbox/base/ids.py::LedgerId` `a/b.py`") == [
        ("bkbox/base/ids.py", "LedgerId"),
        ("a/b.py", ""),
    ]
    assert _problem("bkbox/base/ids.py", "LedgerId") == ""
    assert _problem("base/ids.py", "") == ""
    assert _problem("bkbox/base/nothing.py", "LedgerId") == "no such file"
    assert _problem("bkbox/base/ids.py", "Missing.of") == "no Missing, of in it"


def test_the_tests_that_the_page_of_coverage_names_are_there() -> None:
    page = (ROOT / "docs/coverage.md").read_text()
    files = re.findall(r"(?<![\w/])(?:\w+/)+[\w*]+\.py", page)
    folders = [ROOT / "tests", ROOT / "proof", ROOT]
    assert [file for file in files if not any(list(folder.glob(file)) for folder in folders)] == []
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    names = re.findall(r"`(test_\w+[a-z0-9])`", page)
    assert [name for name in names if f"def {name}(" not in tests] == []
    assert len(files) > 100
    assert len(names) > 20


# ---- links ---------------------------------------------------------------------------------------


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", _BLOCK.sub("", page.read_text()), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        count = 0
        while (anchor := f"{slug}-{count}" if count else slug) in found:
            count += 1
        found.add(anchor)
    return found


def _broken(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_BLOCK.sub("", page.read_text())):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_file():
            yield f"{link}: no such file"
        elif anchor and target.suffix == ".md" and anchor not in _anchors(target):
            yield f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert list(_broken(page)) == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n[a](#one-two) [b](#three) [c](none.md)\n```\n[d](none.md)\n```\n")
    assert list(_broken(page)) == ["#three: no such heading", "none.md: no such file"]
