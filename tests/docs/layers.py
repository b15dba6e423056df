"""docs/layers.md: pictures of the layers, made from the import contracts in .importlinter:

python -m tests.docs.layers
"""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

from tests.bench.peers.report import replace_between

CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs/layers.md"
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


def pictures(contracts: ConfigParser) -> str:
    """Markdown: the layers of all, then those inside packages, folded."""
    parts = []
    for name in contracts.sections():
        contract = contracts[name]
        if contract.get("type") != "layers":
            continue
        drawn = ["```", *picture(contract["layers"].strip().split("\n")), "```"]
        if "containers" in contract:
            summary = re.sub(r"[.]", "/", contract["containers"])
            drawn = [
                "<details>",
                f"<summary>Inside {summary}</summary>",
                "",
                *drawn,
                "",
                "</details>",
            ]
        parts.append("\n".join(drawn))
    return "\n\n".join(parts)


def page_with_pictures(page: str) -> str:
    """The page as it ought to be."""
    contracts = ConfigParser()
    contracts.read_string((CHECKOUT / ".importlinter").read_text())
    return replace_between(page, "layers", f"\n{pictures(contracts)}\n")


if __name__ == "__main__":
    PAGE.write_text(page_with_pictures(PAGE.read_text()))
