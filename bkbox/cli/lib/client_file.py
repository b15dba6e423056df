"""TLS and credentials of commands towards bookies: a file that an environment variable names.

The file is TOML; its keys are the security options of bkbox/client/options.py (SECURITY). Relative paths count from its
folder. Commands have no options for it: these settings are the same for every command on a cluster.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bkbox.base.host.small_files import read_small
from bkbox.base.redaction import CLIENT_FILE
from bkbox.client.options import SECURITY, ClientOptions, set_process_defaults
from bkbox.errors import ConfigError

VARIABLE = CLIENT_FILE


def apply(environ: Mapping[str, str]) -> None:
    """Applies the file to all clients of this process. Raises ConfigError."""
    name = environ.get(VARIABLE)
    if not name:
        return
    path = Path(name)
    values = _read(path)
    unknown = sorted(values.keys() - set(SECURITY))
    if unknown:
        known = ", ".join(SECURITY)
        raise ConfigError([f"{path}: unknown key {key}; there are {known}" for key in unknown])
    for key, value in values.items():
        if key == "tls_check_host_name":
            if not isinstance(value, bool):
                raise ConfigError([f"{path}: {key} has to be true or false"])
        elif not isinstance(value, str):
            raise ConfigError([f"{path}: {key} has to be a text in quotes"])
        elif key.endswith("_file"):
            values[key] = str(path.parent / value)
    ClientOptions(**values)  # reports impossible values with the errors of ClientOptions
    set_process_defaults(values)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_small(path).decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError([f"{path} ({VARIABLE}) cannot be read: {error.strerror}"]) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{path} ({VARIABLE}) is not TOML: {error}"]) from None
