"""Checks that only the bookie's user and root can change what the bookie runs with: a configuration can name
executables."""

from __future__ import annotations

from bkbox.base.host.writers import writable_by_others
from bkbox.config.schema import Config
from bkbox.errors import BootError


def other_writers(config: Config, user: int) -> list[str]:
    """The ways in which other users can change what the bookie runs with: its configuration, the program that it names,
    or their folders. Empty if only root and this user can."""
    program = config.topology_script
    files = [config.path] if program is None else [config.path, program]
    return [problem for path in files for problem in writable_by_others(path, user)]


def refuse_other_writers(config: Config, user: int) -> None:
    """Raises BootError if other users can change what the bookie runs with."""
    found = other_writers(config, user)
    if found:
        raise BootError(
            "the configuration can be changed by others than the user that runs the bookie; they could have it run "
            "anything:\n" + "\n".join(found)
        )
