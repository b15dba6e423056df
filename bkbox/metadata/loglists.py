"""The store of logs' ledger lists: a small document under a name, replaced by compare-and-set.

The format of a document belongs to bkbox/client/log. A name is never removed, because the version of its document
must not begin anew: a writer that comes back from a long pause would take the new document for its own. A deleted log
leaves a document that marks it as deleted.

Beside its list a log has an *election*, which keeps would-be writers from ending each other. It is advisory. Safety
comes from compare-and-set of the list, and from fencing the ledgers.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from bkbox.base.text import quoted
from bkbox.errors import InvalidIdError
from bkbox.metadata.underreplication import Candidacy
from bkbox.metadata.versioned import Versioned

DATASET_PREFIX = "dataset."
"""Prefix of documents that are no logs but datasets published by Spark (pyspark_bookkeeper/dataset.py)."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def log_name(text: str) -> str:
    """Check the name of a log. Raises InvalidIdError."""
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        shown = quoted(text[:200]) if isinstance(text, str) else quoted(text)
        raise InvalidIdError(
            f"{shown} is no name of a log: 1 to 128 letters, digits, '.', '_' and '-', the first a letter or digit"
        )
    return text


class LogLists(ABC):
    """The documents of one cluster. Every method raises MetadataError; names are those of ``log_name``."""

    @abstractmethod
    async def find(self, name: str, *, linearizable: bool = False) -> Versioned[bytes] | None:
        """The document, None if there is none. ``linearizable``: a linearizable read."""

    @abstractmethod
    async def write(self, name: str, data: bytes, expected_version: int | None) -> int:
        """Create the document (None) or replace this version of it; returns the new version.

        Raises VersionConflictError.
        """

    @abstractmethod
    def watch(self, name: str) -> AsyncIterator[Versioned[bytes] | None]:
        """The document now and after each change; None while there is none."""

    @abstractmethod
    async def names(self) -> list[str]:
        """Every name that has a document, ascending."""

    @abstractmethod
    def candidacy(self, name: str, candidate: str) -> Candidacy:
        """Stand for the leadership of a log, from the first ``is_elected`` on. ``candidate``: a name, for operators."""

    @abstractmethod
    async def leader(self, name: str) -> str | None:
        """The name of the elected candidate; None without one."""
