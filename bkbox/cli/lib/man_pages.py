"""Manual pages generated from the tree of commands: the text of ``--help``, in the form of man(7).

Written here and not with click-man, because examples and tables in our help are blocks that must keep their lines
(``\\b``), and commands that are loaded late have to be asked for by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from bkbox import __version__

_EMPTY = "\\&"
_SECTIONS = ("Example:", "Exit codes:")
"""First lines of blocks that get a heading of their own."""


def pages(command: click.Command, name: str = "bkbox") -> Iterator[tuple[str, str]]:
    """Name and text of the page of a command and of each of its subcommands: ``bkbox-config-show``."""
    yield from _pages(click.Context(command, info_name=name), name)


def _pages(context: click.Context, name: str) -> Iterator[tuple[str, str]]:
    children = dict(_children(context))
    yield name, _page(context, name, children)
    for each, child in children.items():
        yield from _pages(child, f"{name}-{each}")


def _children(context: click.Context) -> Iterator[tuple[str, click.Context]]:
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield name, click.Context(found, info_name=name, parent=context)


def _page(context: click.Context, name: str, children: dict[str, click.Context]) -> str:
    command = context.command
    summary = command.get_short_help_str(200).rstrip(".")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [
        f'.TH "{name.upper()}" 1 "" "bkbox {__version__}" "bkbox manual"',
        f".SH NAME\n{_escaped(name)} \\- {_escaped(summary)}",
        f".SH SYNOPSIS\n.B {_escaped(usage)}",
    ]
    blocks = _blocks(command.help or "")
    shown = [block for block in blocks if not block.startswith(_SECTIONS)]
    parts.append(".SH DESCRIPTION\n" + "\n.PP\n".join(map(_block, shown)))
    options = [
        found for each in command.get_params(context) if (found := each.get_help_record(context))
    ]
    if options:
        parts.append(".SH OPTIONS\n" + "\n".join(_item(left, right) for left, right in options))
    if children:
        items = [
            (
                f"bkbox{each.command_path.removeprefix('bkbox')}",
                each.command.get_short_help_str(200),
            )
            for each in children.values()
        ]
        parts.append(".SH COMMANDS\n" + "\n".join(_item(left, right) for left, right in items))
    for block in [*blocks, *_blocks(command.epilog or "")]:
        if block.startswith(_SECTIONS):
            heading, _, rest = block.partition("\n")
            parts.append(f".SH {heading.rstrip(':').upper()}\n{_literal(rest)}")
    related = [name.rpartition("-")[0]] if context.parent is not None else []
    related += [f"{name}-{child}" for child in children]
    if related:
        parts.append(".SH SEE ALSO\n" + ",\n".join(f".BR {each} (1)" for each in related))
    return "\n".join(parts) + "\n"


def _blocks(text: str) -> list[str]:
    """Paragraphs of a help text; those that keep their lines still begin with the mark."""
    found = inspect.cleandoc(text).split("\n\n")
    return [block.removeprefix("\b\n") if _is_section(block) else block for block in found if block]


def _is_section(block: str) -> bool:
    return block.removeprefix("\b\n").startswith(_SECTIONS)


def _block(block: str) -> str:
    if block.startswith("\b\n"):
        return _literal(block.removeprefix("\b\n"))
    return _escaped(" ".join(block.split()))


def _literal(text: str) -> str:
    lines = inspect.cleandoc(text).splitlines()
    return ".nf\n" + "\n".join(_escaped(line) for line in lines) + "\n.fi"


def _item(left: str, right: str) -> str:
    return f".TP\n.B {_escaped(left)}\n{_escaped(right) or _EMPTY}"


def _escaped(text: str) -> str:
    """Escapes text for man(7): backslashes, dashes, and a dot or quote at the beginning of a line."""
    escaped = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    )
    return "\\&" + escaped if escaped.startswith((".", "\\(aq")) else escaped
