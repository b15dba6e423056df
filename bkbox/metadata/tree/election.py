"""An election as each kind of tree holds it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bkbox.metadata.underreplication import Candidacy


class Election(ABC):
    """One election. Every method raises MetadataError."""

    @abstractmethod
    def candidacy(self, name: str) -> Candidacy:
        """Stand, from the first ``is_elected`` on. ``name``: for operators."""

    @abstractmethod
    async def holder(self) -> str | None:
        """The name of the elected candidate; None without one."""
