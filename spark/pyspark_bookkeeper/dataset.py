"""A dataset: a named set of closed ledgers that were written together, a small document in the metadata store.

Ledgers are *published* by replacing the document with compare-and-set: readers see all of a job or nothing. Ledgers
that were removed (``overwrite``) are doomed until they are deleted, so that an interrupted job leaves nothing behind.
For each writer of a stream the document has the number of its last batch: a repeated batch is recognised.

Spark's writes to a log use such a document of the log's: the ledgers of a job are published there, in an order, and
then their entries are appended to the log (logsink.py). ``queue`` has the ledgers not yet appended.

As stored: JSON under the name ``dataset.NAME`` among the lists of logs, ledgers as ``1,5-9``. A document of 1 MiB,
ZooKeeper's maximum, has space for 100,000 ledgers and more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from bkbox.audit.selection import format_ledgers, parse_ledgers
from bkbox.base.ids import LedgerId
from bkbox.base.text import error_text, quoted
from bkbox.errors import MetadataError, OperatorError, VersionConflictError
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.loglists import DATASET_PREFIX, log_name

_FORMAT = 1


@dataclass(frozen=True)
class Dataset:
    """``instance``: the cluster of the ledgers. For each streaming writer, by name: ``batches``, the last published
    one; ``swept``: no abandoned ledger is left with an id below this."""

    instance: str
    ledgers: frozenset[int] = frozenset()
    doomed: frozenset[int] = frozenset()
    batches: dict[str, int] = field(default_factory=dict)
    swept: dict[str, int] = field(default_factory=dict)
    queue: tuple[tuple[int, int], ...] = ()
    """For a log: ledgers whose entries are still to be appended, in this order, each with the sequence number of its
    first entry."""
    next_sequence: int = 0


Change = Callable[[Dataset], Dataset]


class Datasets:
    """The datasets of one cluster."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def find(self, name: str) -> Dataset | None:
        """The dataset; None if there is none of this name. Raises MetadataError."""
        found = await self._store.logs.find(_document(name), linearizable=True)
        return None if found is None else await self._decoded(name, found.value)

    async def read(self, name: str) -> Dataset:
        """The dataset. Raises OperatorError if there is none of this name, MetadataError."""
        found = await self.find(name)
        if found is None:
            raise OperatorError(
                f"there is no dataset {name}: nothing was ever published under this name"
            )
        return found

    async def change(self, name: str, change: Change) -> Dataset:
        """Replaces the document by compare-and-set, repeated after concurrent changes. Raises MetadataError, what
        ``change`` raises."""
        while True:
            stored = await self._store.logs.find(_document(name), linearizable=True)
            before = (
                Dataset(await self._store.instance_id())
                if stored is None
                else await self._decoded(name, stored.value)
            )
            after = change(before)
            if stored is not None and after == before:
                return after
            version = None if stored is None else stored.version
            try:
                await self._store.logs.write(_document(name), _encode(after), version)
            except VersionConflictError:
                continue
            return after

    async def bury(self, name: str) -> None:
        """Deletes the doomed ledgers, and removes them from the document. Raises MetadataError."""
        found = await self.find(name)
        if found is None or not found.doomed:
            return
        for ledger in sorted(found.doomed):
            await self._store.delete_ledger(LedgerId(ledger))
        await self.change(name, lambda now: replace(now, doomed=now.doomed - found.doomed))

    async def _decoded(self, name: str, data: bytes) -> Dataset:
        try:
            fields = json.loads(data)
            if fields["format"] != _FORMAT:
                raise MetadataError(
                    f"dataset {name} has format {quoted(fields['format'])}, this version reads {_FORMAT}"
                )
            found = Dataset(
                fields["instance"],
                _ids(fields["ledgers"]),
                _ids(fields["doomed"]),
                {str(writer): int(batch) for writer, batch in fields["batches"].items()},
                {str(writer): int(ledger) for writer, ledger in fields["swept"].items()},
                tuple((int(ledger), int(first)) for ledger, first in fields.get("queue", ())),
                int(fields.get("next_sequence", 0)),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MetadataError(
                f"the document of dataset {name} cannot be read: {error_text(error)}"
            ) from None
        if found.instance != await self._store.instance_id():
            raise MetadataError(
                f"dataset {name} is of cluster {found.instance}, which was made anew since: its ledgers are gone"
            )
        return found


def published(
    new: Collection[int], *, overwrite: bool, writer: str = "", batch: int = -1
) -> Change:
    """The change that publishes these ledgers; no change if this writer's batch is published already."""

    def change(before: Dataset) -> Dataset:
        if writer and before.batches.get(writer, -1) >= batch:
            return before
        batches = {**before.batches, writer: batch} if writer else before.batches
        if overwrite:
            doomed = before.doomed | (before.ledgers - frozenset(new))
            return replace(before, ledgers=frozenset(new), doomed=doomed, batches=batches)
        return replace(before, ledgers=before.ledgers | frozenset(new), batches=batches)

    return change


def queued(new: Sequence[tuple[int, int]], *, writer: str = "", batch: int = -1) -> Change:
    """The change that publishes ledgers, each with its number of entries, to be appended to a log in this order; no
    change if this writer's batch is published already."""

    def change(before: Dataset) -> Dataset:
        if writer and before.batches.get(writer, -1) >= batch:
            return before
        queue, number = list(before.queue), before.next_sequence
        for ledger, entries in new:
            if ledger not in before.ledgers | before.doomed:  # the response to this change was lost
                queue.append((ledger, number))
                number += entries
        return replace(
            before,
            ledgers=before.ledgers | {ledger for ledger, _ in queue},
            queue=tuple(queue),
            next_sequence=number,
            batches={**before.batches, writer: batch} if writer else before.batches,
        )

    return change


def appended(ledger: int) -> Change:
    """The change after all entries of a ledger are in the log: the ledger has to be deleted."""

    def change(before: Dataset) -> Dataset:
        left = tuple(each for each in before.queue if each[0] != ledger)
        if left == before.queue:
            return before
        return replace(
            before,
            queue=left,
            ledgers=before.ledgers - {ledger},
            doomed=before.doomed | {ledger},
        )

    return change


def of_log(name: str) -> str:
    """The name of a log's document; no dataset has a colon in its name."""
    return f"log:{log_name(name)}"


def _document(name: str) -> str:
    kind, colon, rest = name.partition(":")
    return (
        f"{DATASET_PREFIX}{kind}{colon}{log_name(rest)}"
        if colon
        else DATASET_PREFIX + log_name(name)
    )


def _encode(found: Dataset) -> bytes:
    fields: dict[str, object] = {
        "format": _FORMAT,
        "instance": found.instance,
        "ledgers": format_ledgers(sorted(found.ledgers)),
        "doomed": format_ledgers(sorted(found.doomed)),
        "batches": found.batches,
        "swept": found.swept,
    }
    if found.next_sequence:
        fields |= {"queue": found.queue, "next_sequence": found.next_sequence}
    return json.dumps(fields).encode()


def _ids(text: str) -> frozenset[int]:
    return frozenset(parse_ledgers(text)) if text else frozenset()
