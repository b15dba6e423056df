"""A few words for tests that compact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.entries.log_indexer import LogIndexer
from bkbox.storage.files import Files
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.index.ordered_store import MemoryStore
from bkbox.storage.maintenance.compaction import Compaction, remove_segment
from bkbox.storage.maintenance.index_scan import IndexScan


def copy_out(store: DiskStore, segment: int) -> Compaction:
    """All steps of a compaction but the removal."""
    compaction = Compaction(store, store.ledger_state, segment)
    while compaction.needs is None:
        compaction.step()
    return compaction


def look_through(store: DiskStore) -> IndexScan:
    survey = IndexScan(store, {})
    while not survey.is_complete:
        survey.step()
    return survey


def compact(store: DiskStore, segment: int) -> str:
    """Compact and remove a segment; why it is still there, empty if it is not."""
    compaction = copy_out(store, segment)
    store.checkpoint()
    why = remove_segment(store, compaction, look_through(store))
    store.remove_unneeded()
    return why


def sealed(store: DiskStore) -> list[int]:
    """The segments that nobody writes to any more."""
    return [segment for segment in store.log.segments() if segment < store.log.position.segment]


def paths(store: DiskStore) -> Iterator[Path]:
    """The files of its segments."""
    return (store.log.path_of(segment) for segment in store.log.segments())


def reindexed(store: DiskStore, files: Files) -> LedgerIndex:
    """What a rebuild makes of the segments that are there."""
    index = LedgerIndex(MemoryStore())
    indexer = LogIndexer(files, index, lambda: None)
    for segment in store.log.segments():
        if files.exists(store.log.path_of(segment)):
            indexer.read(store.log.path_of(segment), store.log.name_of(segment), 0)
    return index
