"""docs/configuration.md, made from the schema: ``python -m tests.config.configurationpage`` writes it."""

from __future__ import annotations

from pathlib import Path

from bkbox.config.schema import SCHEMA, is_live, kind_of
from bkbox.config.values import REQUIRED, to_toml

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"

HEAD = """\
# Configuration

Made from `bkbox/config/schema.py` by `python -m tests.config.configurationpage`; a test compares.

One TOML file of flat keys. The environment goes before the file: `BKBOX_` and the key in upper case, lists of
folders with colons, other lists with semicolons.
A relative path counts from the folder of the file. A key that is not in this table is an error. Units are in the names
of the keys.

*live*: a bookie that runs takes a change over, with `bkbox config reload` or SIGHUP; all others need a restart.

| key | can be | default | live | what it does |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = []
    for name, item in SCHEMA.items():
        default = item.metadata["default"]
        shown = "(required)" if default is REQUIRED else f"`{to_toml(default)}`"
        live = "live" if is_live(item) else ""
        meaning = item.metadata["doc"].replace("|", "\\|")
        rows.append(f"| `{name}` | {kind_of(item).permitted()} | {shown} | {live} | {meaning} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page())
