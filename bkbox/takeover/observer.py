"""Reports of a conversion while it runs."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """``step`` is called before each step that a kill may precede; ``stage`` names what follows and how many bytes it
    is; ``advance`` counts them. An exception from any of them ends the conversion as a kill would.
    """

    def step(self, name: str) -> None: ...

    def stage(self, name: str, total_bytes: int) -> None: ...

    def advance(self, count: int) -> None: ...
