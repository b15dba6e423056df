"""Selects the Python with which Spark runs tasks, and explains a module that it lacks."""

from __future__ import annotations

import os
import re
import sys

_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): (No module named '?([\w.]+)'?)")


def choose_python() -> None:
    """Has tasks run with this Python, unless the operator has chosen one: Spark would take the first python3 on
    PATH."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def missing_module(cause: str, python: str) -> str:
    """Advice for the operator if ``python`` lacks a module."""
    return (
        f"{cause}: {python}, which Spark runs its tasks with, lacks it. Set PYSPARK_PYTHON to a Python that has "
        "bkbox[spark], on every executor, before Spark starts: export PYSPARK_PYTHON=$(command -v python)"
    )


def missing_in(text: str) -> str | None:
    """The same from Spark's report of a failed task."""
    found = _MISSING.search(text)
    if found is None:
        return None
    return missing_module(found[1], os.environ.get("PYSPARK_PYTHON", "python3"))
