"""Command lines of bkbox that messages suggest: each can be pasted as it stands.

A command about a bookie carries ``--config`` with the absolute path of the bookie's configuration; one about the
cluster carries the same, or ``--metadata``. Which of them is known is set once per process (``set_origin``), by the
command or the supervisor that has read the configuration; a process that knows neither suggests the command without
them. A word that the operator has to replace is in capitals: ``NEW_FOLDER``.

Messages never spell out a command line: tests/cli/test_suggested_commands.py finds all calls of these functions, and
parses what they suggest.
"""

from __future__ import annotations

import shlex
from enum import Enum


class About(Enum):
    """What a command is about, which decides the options it is completed with."""

    BOOKIE = "bookie"
    CLUSTER = "cluster"
    NOTHING = "nothing"


_options: dict[About, tuple[str, ...]] = {}
_needless = ""


class CommandLine:
    """A command line that is completed with this process's options whenever it becomes text."""

    __slots__ = ("_about", "_words")

    def __init__(self, about: About, words: tuple[object, ...]) -> None:
        self._about = about
        self._words = tuple(map(str, words))

    def __str__(self) -> str:
        return shlex.join(("bkbox", *self._words, *_options.get(self._about, ())))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def bookie_command(*words: object) -> CommandLine:
    """A command that takes ``--config``."""
    return CommandLine(About.BOOKIE, words)


def cluster_command(*words: object) -> CommandLine:
    """A command that takes ``--config`` or ``--metadata``."""
    return CommandLine(About.CLUSTER, words)


def plain_command(*words: object) -> CommandLine:
    """A command that needs neither, names what it is about itself, or is for another host."""
    return CommandLine(About.NOTHING, words)


def set_origin(*, config: str = "", metadata: str = "", is_found: bool = False) -> None:
    """Sets what the commands suggested from now on are completed with. ``config``: an absolute path; "" for what is
    unknown. ``is_found``: commands find that file without being told."""
    global _needless
    _options.clear()
    named = ("--config", config)
    _needless = f" {shlex.join(named)}" if config and is_found else ""
    if config and not is_found:
        _options.update({About.BOOKIE: named, About.CLUSTER: named})
    elif metadata:
        _options[About.CLUSTER] = ("--metadata", metadata)


def shortened(text: str) -> str:
    """The text of a bookie, which always names its configuration, without it where commands here find that file."""
    return text.replace(_needless, "") if _needless else text
