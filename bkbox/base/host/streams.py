"""The standard streams of a process."""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Opens those that the caller closed (``>&-``): otherwise the next file that is opened, a database even, would be
    standard output or error. What is written goes nowhere; reading is an error."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_WRONLY)  # takes the lowest free number
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w"))
