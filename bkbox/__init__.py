"""bkbox: an Apache BookKeeper bookie for one host that is safe without a journal."""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING

from bkbox.native import interpret_if_requested

if TYPE_CHECKING:
    from bkbox.client import connect

interpret_if_requested(os.path.dirname(__file__))

__version__ = "0.1.0"

__all__ = ["connect"]


def __getattr__(name: str) -> object:
    """``connect`` is loaded when it is first used: most of bkbox has no need of a client."""
    if name == "connect":
        from bkbox.client import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
