"""bkbox: an Apache BookKeeper bookie for one host that is safe without a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkbox.client import connect

__version__ = "0.1.0"

__all__ = ["connect"]


def __getattr__(name: str) -> object:
    """``connect`` is loaded when it is first used: most of bkbox has no need of a client."""
    if name == "connect":
        from bkbox.client import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
