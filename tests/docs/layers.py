"""The pictures of the layers in docs/architecture.md, made from the import contracts in pyproject.toml:

python -m tests.docs.layers
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tests.bench.peers.report import replace_between

CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs/architecture.md"
WIDTH = 96


def picture(layers: list[str]) -> list[str]:
    """One box a layer, the highest first; what is side by side in a box does not import one another."""
    edge = "─" * (WIDTH - 2)
    lines = [f"┌{edge}┐"]
    for layer in layers:
        row = ""
        for module in layer.split(" | "):
            if row and len(row) + 3 + len(module) > WIDTH - 4:
                lines.append(f"│ {row:{WIDTH - 4}} │")
                row = module
            else:
                row = f"{row} · {module}" if row else module
        lines += [f"│ {row:{WIDTH - 4}} │", f"├{edge}┤"]
    lines[-1] = f"└{edge}┘"
    return lines


def pictures(contracts: list[dict[str, Any]]) -> str:
    """Markdown: the layers of all, then those inside packages, folded."""
    parts = []
    for contract in contracts:
        if contract["type"] != "layers":
            continue
        drawn = ["```", *picture(contract["layers"]), "```"]
        if "containers" in contract:
            summary = f"<summary>{contract['name'].replace('bkbox.', 'bkbox/', 1)}</summary>"
            drawn = ["<details>", summary, "", *drawn, "", "</details>"]
        parts.append("\n".join(drawn))
    return "\n\n".join(parts)


def page_with_pictures(page: str) -> str:
    """The page as it ought to be."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    return replace_between(page, "layers", f"\n{pictures(contracts)}\n")


if __name__ == "__main__":
    PAGE.write_text(page_with_pictures(PAGE.read_text()))
