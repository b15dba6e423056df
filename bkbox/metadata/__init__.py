"""Where the metadata of a cluster is kept: ``sqlite:PATH``, behind the interface of base.py."""

from __future__ import annotations

from pathlib import Path

from bkbox.config import metadata_uri_problem
from bkbox.errors import ConfigError
from bkbox.metadata import sqlite
from bkbox.metadata.base import MetadataStore


async def connect(uri: str) -> MetadataStore:
    """Connect to a store that exists.

    Raises ConfigError (a URI that means nothing), MetadataUnavailableError, MetadataError.
    """
    return await sqlite.SqliteStore.open(_sqlite_path(uri))


async def create(uri: str) -> MetadataStore:
    """Create the store with a new instance id unless it exists, and connect. Raises as connect."""
    path = _sqlite_path(uri)
    await sqlite.create(path)
    return await sqlite.SqliteStore.open(path)


def _sqlite_path(uri: str) -> Path:
    problem = metadata_uri_problem(uri)
    if problem is not None:
        raise ConfigError([f"metadata URI {uri!r}: {problem}"])
    return Path(uri.partition(":")[2])
