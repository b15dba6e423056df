"""The documentation site: ``make site`` builds it into build/site from the pages that GitHub shows.

The source directory is the checkout, so that a link such as ``../README.md`` leads to the same page here and there. The
side bar is made from docs/README.md: a page that it does not link to fails the build, as does a broken link or anchor.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
INDEX = "docs/README"

project = "bkbox"
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
extensions = ["myst_parser"]
root_doc = INDEX
include_patterns = ["*.md", "docs/*.md", "examples/README.md"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"bkbox {release}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
highlight_language = "text"
html_extra_path = ["index.html"]  # the root of the site leads to the index

_LINK = re.compile(r"\]\(([\w./-]+)\.md[)#]")


def _side_bar(index: str) -> str:
    """One list a section of docs/README.md, each page where it is linked to first."""
    lists, seen = [], {INDEX}
    for section in index.split("\n## ")[1:]:
        pages = []
        for link in _LINK.findall(section):
            page = os.path.normpath(f"docs/{link}")
            if page not in seen:
                seen.add(page)
                pages.append(f"/{page}")
        caption = section.partition("\n")[0]
        options = f":hidden:\n:caption: {caption}\n"
        lists.append(f"```{{toctree}}\n{options}\n" + "\n".join(pages) + "\n```\n")
    return "\n\n" + "\n".join(lists)


def _add_side_bar(_app: Sphinx, page: str, source: list[str]) -> None:
    if page == INDEX:
        source[0] += _side_bar(source[0])


def setup(app: Sphinx) -> None:
    for language in ("example", "example-text"):  # the examples of docs/protocol.md
        app.add_lexer(language, TextLexer)
    app.connect("source-read", _add_side_bar)
