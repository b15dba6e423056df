"""docs/cli.md, made from the tree of commands: ``python -m tests.cli.commandpage`` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from bkbox.cli.lib.exit_codes import MEANINGS
from bkbox.cli.main import COMMANDS, PROOF_COMMANDS, main

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"

WIDTH = 110

HEAD = """\
# Commands

Made from the commands themselves by `python -m tests.cli.commandpage`; a test compares. [manual.md](manual.md) is
ordered by what you want to do.

- Data goes to standard output, messages to standard error. `-o json` and `-o yaml` print one document; `bkbox schema
  COMMAND` prints its JSON Schema. Keys may be added to a document; none goes or changes its meaning. What a command has
  changed is told in messages; with `-o` they are a document, too, once it is done.
- `--config` is the configuration of the bookie that a command is about. Without it, the variable `BKBOX_CONFIG` names
  the file; without that it is `/etc/bkbox/bookie.toml`, or else the only `*.toml` in that folder. Without `--metadata`
  the metadata store is that of the same configuration.
- `--dry-run` says what would be done and changes nothing. `--watch` looks again every two seconds, until Ctrl-C.
- `sim`, `model-check` and `chaos` belong to the package `proof`: a checkout has them, an installed bkbox does not.
- `bkbox completion bash|zsh|fish` and `bkbox man FOLDER` make completion and manual pages.

| exit code | it means |
|---|---|
"""


def page() -> str:
    """The whole page."""
    codes = "".join(f"| {code.value} | {meaning} |\n" for code, meaning in MEANINGS.items())
    index = "".join(
        f"| [`bkbox {name}`](#bkbox-{name}) | {summary}{_where(name)} |\n"
        for name, (_, summary) in COMMANDS.items()
    )
    sections = "".join(_sections(main, click.Context(main, info_name="bkbox")))
    return f"{HEAD}{codes}\n| command | |\n|---|---|\n{index}{sections}"


def _where(name: str) -> str:
    return " Only in a checkout." if name in PROOF_COMMANDS else ""


def _sections(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        below = click.Context(
            command, info_name=name, parent=context, terminal_width=WIDTH, max_content_width=WIDTH
        )
        level = "##" if context.parent is None else "###"
        yield f"\n{level} {below.command_path}\n\n```\n{command.get_help(below)}\n```\n"
        if isinstance(command, click.Group):
            yield from _sections(command, below)


if __name__ == "__main__":
    PAGE.write_text(page())
