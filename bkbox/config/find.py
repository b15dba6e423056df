"""Finds the configuration of this host's bookie where none is named: by the variable BKBOX_CONFIG, else a default path.

The default path is ``/etc/bkbox/bookie.toml``, else the only ``*.toml`` in that folder. An empty variable counts as
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bkbox.errors import ConfigError

VARIABLE = "BKBOX_CONFIG"
FOLDER = Path("/etc/bkbox")
NAME = "bookie.toml"

WAYS = f"--config FILE, {VARIABLE}, or {FOLDER / NAME} (else the only *.toml there)"


def found(environ: Mapping[str, str]) -> Path:
    """The path of the configuration. Raises ConfigError, with the ways to name one, where there is none."""
    path = of_variable(environ) or of_default_path()
    if path is not None:
        return path
    several = _in_folder()
    why = (
        f"several configurations are in {FOLDER}: {', '.join(file.name for file in several)}; "
        f"name one with --config or {VARIABLE}"
        if several
        else f"no configuration was found; one is named by {WAYS}"
    )
    raise ConfigError([why])


def leads_to(path: Path, environ: Mapping[str, str]) -> bool:
    """True if this file is found without being named."""
    other = of_variable(environ) or of_default_path()
    try:
        return other is not None and other.samefile(path)
    except OSError:
        return False


def of_variable(environ: Mapping[str, str]) -> Path | None:
    """The path that the variable names, whether it exists or not."""
    text = environ.get(VARIABLE)
    return Path(text) if text else None


def of_default_path() -> Path | None:
    """None where there is no such file, or more than one and none is called bookie.toml."""
    files = _in_folder()
    named = [file for file in files if file.name == NAME]
    return named[0] if named else files[0] if len(files) == 1 else None


def _in_folder() -> list[Path]:
    """All configurations; none if the folder cannot be listed."""
    try:
        return sorted(file for file in FOLDER.glob("*.toml") if file.is_file())
    except OSError:
        return []
