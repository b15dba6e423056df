"""``bkbox completion`` and ``bkbox man``: shell completion and manual pages, generated from the commands."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from bkbox.cli.lib.output import message, outcome_option
from bkbox.errors import HostError

_VARIABLE = "_BKBOX_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes a shell complete bkbox's commands, options and keys.

    \b
    Example:
      bkbox completion bash > /etc/bash_completion.d/bkbox
      bkbox completion zsh > ~/.zfunc/_bkbox
      bkbox completion fish > ~/.config/fish/completions/bkbox.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "bkbox", _VARIABLE).source())


@click.command(no_args_is_help=True)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@outcome_option
@click.pass_context
def man(ctx: click.Context, folder: Path) -> None:
    """Write a manual page for each command into a folder.

    \b
    Example:
      bkbox man /usr/local/share/man/man1
    """
    from bkbox.cli.lib.man_pages import pages

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pages(ctx.find_root().command):
            (folder / f"{name}.1").write_text(text)
    except OSError as error:
        raise HostError(f"cannot write {error.filename}: {error.strerror}") from None
    message(f"wrote the manual to {folder}: man -l {folder}/bkbox.1")
