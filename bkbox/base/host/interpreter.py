"""The command that runs a module of bkbox in a fresh interpreter.

``python -m`` alone puts the working directory first on the import path: a ``json.py`` that lies where an operator
stands would run in every process of the bookie.
"""

from __future__ import annotations

import os
import sys


def module_command(module: str) -> tuple[str, ...]:
    """The command, without the working directory on its import path (``-P``)."""
    return sys.executable, "-P", "-m", module


def keep_import_path_safe() -> None:
    """The same for all interpreters that libraries start from now on (multiprocessing, Spark), by the environment."""
    os.environ["PYTHONSAFEPATH"] = "1"
