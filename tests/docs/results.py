"""The results in docs/verification.md, each between its markers.

python -m tests.docs.results model
    write the tables of the model anew, from the rows that tests/model asserts
python -m tests.docs.results NAME COMMAND…
    run a command, print what it prints, and put that between the markers NAME, with the command and the machine; ends
    with the command's exit code
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from proof.model.options import AS_PUBLISHED, Loss, Options
from tests.bench.peers.report import machine, replace_between
from tests.model.rows import ROWS, Row

PAGE = Path(__file__).parents[2] / "docs/verification.md"

_HEADINGS = {
    "as published": "As published",
    "corrected": "Corrected",
    "variant": "Variants that decide the design",
    "exhausted": "The largest searches without folding",
    "folded": "With folding",
    "defect": "The two defects of 4.13, found again",
}
_SWITCHED_OFF = {
    "fence": "--no-fence",
    "limbo": "--no-limbo",
    "mounts": "--boot-id-only",
    "records": "--no-records",
    "message_loss": "--no-message-loss",
    "recovery_reads_fence": "--no-recovery-fence",
    "lac_floor": "--no-lac-floor",
}
_LOSSES = {
    Loss.DISK: "--disk-loss",
    Loss.PROCESS: "--process-crash",
    Loss.DEVICE: "--device-loss",
}


def arguments(row: Row) -> list[str]:
    """Of ``bkbox model-check``, for this row."""
    options, usual = row.options, Options()
    found = ["--as-published"] if options.corrections == AS_PUBLISHED else []
    for name in Options.__annotations__:
        value = getattr(options, name)
        if value == getattr(usual, name) or name == "corrections":
            continue
        flag = "--" + name.replace("_", "-")
        if name in _SWITCHED_OFF:
            found.append(_SWITCHED_OFF[name])
        elif name == "loss":
            found.append(_LOSSES[value])
        elif name == "windows":
            found += [word for window in value for word in ("--window", window.value)]
        elif name == "clearing":
            found += ["--clear-limbo", value.value]
        elif name == "marks":
            found += ["--marks", value.value]
        else:
            found += [flag] if value is True else [flag, str(value)]
    if options.corrections.early_reads:
        found.append("--early-reads")
    if not options.corrections.responses_have_ids and options.corrections != AS_PUBLISHED:
        found += ["--without", "D9"]
    return [*found, "--fold"] if row.fold else found


def model_tables() -> str:
    """Markdown: a table for each group of rows."""
    parts = []
    for group, heading in _HEADINGS.items():
        lines = [
            f"**{heading}**",
            "",
            "| `bkbox model-check …` | result | states | transitions | levels, or trace |",
            "|---|---|--:|--:|--:|",
        ]
        for name, row in ROWS:
            if name == group:
                words = " ".join(arguments(row))
                shown = f"`{words}`" if words else ""
                result = row.outcome if row.outcome == "safe" else f"{row.outcome} broken"
                lines.append(
                    f"| {shown} | {result} | {row.distinct:,} | {row.generated:,} | {row.levels} |"
                )
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def page_with_model_tables(page: str) -> str:
    """The page as it ought to be."""
    return replace_between(page, "model", f"\n{model_tables()}\n")


def result(command: list[str], output: str) -> str:
    """Markdown of what a command has printed; a table of its own is taken as it is."""
    text = output.strip("\n")
    block = text if text.startswith("|") else f"```\n{text}\n```"
    return f"`{shlex.join(command)}`, on {machine()}:\n\n{block}"


def main() -> int:
    match sys.argv[1:]:
        case ["model"]:
            PAGE.write_text(page_with_model_tables(PAGE.read_text()))
        case [name, *command] if command:
            replace_between(PAGE.read_text(), name, "")  # fails before the command takes its time
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            print(done.stdout, end="")
            text = replace_between(PAGE.read_text(), name, result(command, done.stdout))
            PAGE.write_text(text)
            return done.returncode
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
