"""``bkbox schema``: the JSON Schema of what a command prints with -o json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from bkbox.api.admin.schema import Schemas

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@click.command(no_args_is_help=True)
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True)
@click.pass_context
def schema(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Print the JSON Schema of what a command prints with -o json.

    Keys may be added under the same schema; none goes or changes its meaning.

    \b
    Example:
      bkbox schema status
      bkbox schema ledger list
    """
    shapes = shapes_of(ctx.find_root().command, words)
    if not shapes:
        raise click.UsageError(f"bkbox {' '.join(words)} prints no documents")
    click.echo(json.dumps(schema_of(shapes, f"bkbox {' '.join(words)}"), indent=2))


def shapes_of(root: click.Command, words: tuple[str, ...]) -> tuple[Any, ...]:
    """The types of the documents that a command prints. Raises UsageError if there is no such command."""
    found = root
    for number, word in enumerate(words):
        child = (
            found.get_command(click.Context(found), word)
            if isinstance(found, click.Group)
            else None
        )
        if child is None:
            raise click.UsageError(f"there is no command bkbox {' '.join(words[: number + 1])}")
        found = child
    return getattr(found.callback, "shapes", ())


def commands(
    root: click.Command, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands below one, each with its words on the command line."""
    if isinstance(root, click.Group):
        for name in root.list_commands(click.Context(root)):
            child = root.get_command(click.Context(root), name)
            assert child is not None
            yield (*above, name), child
            yield from commands(child, (*above, name))


def schema_of(shapes: tuple[Any, ...], title: str) -> dict[str, Any]:
    """The schema of documents that are of one of these types."""
    schemas = Schemas("#/$defs")
    found = [schemas.of(shape) for shape in shapes]
    whole = found[0] if len(found) == 1 else {"anyOf": found}
    return {
        "$schema": _DIALECT,
        "title": title,
        **whole,
        "$defs": dict(sorted(schemas.found.items())),
    }
