"""Which of upstream's tests run on bkbox bookies: what ``classes.toml`` says."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

_FILE = Path(__file__).parent / "classes.toml"


@dataclass(frozen=True)
class InScope:
    """A class, its methods that run, those of them that are run by default, and those out of scope with the reason."""

    name: str
    tests: list[str]
    sample: list[str] = field(default_factory=list)
    out: dict[str, str] = field(default_factory=dict)

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]


_READ = tomllib.loads(_FILE.read_text())

CLASSES = [InScope(**each) for each in _READ["class"]]

OUT: dict[str, list[str]] = {each["reason"]: each["classes"] for each in _READ["out"]}
"""Classes that cannot run here as a whole, by the reason."""


def listed() -> list[str]:
    """All classes that ``classes.toml`` names."""
    return [each.name for each in CLASSES] + [name for names in OUT.values() for name in names]
