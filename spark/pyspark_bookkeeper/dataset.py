"""A dataset: a name for closed ledgers that were written together, kept in the metadata store as one small document.

Ledgers are *published* by replacing the document with compare-and-set: readers see all of a job or nothing. Those that
were taken off (``overwrite``) are doomed until they are deleted, so that nothing is left behind by who is interrupted.
For each writer of a stream the document has the number of its last batch: one that comes again is recognised.

What Spark writes to a log goes through such a document of the log's: the ledgers of a job are published there, in an
order, and then their entries are appended to the log (logsink.py). ``queue`` has those of which that is not done yet.

As stored: JSON under the name ``dataset.NAME`` among the lists of logs, ledgers as ``1,5-9``. A document of 1 MiB, what
ZooKeeper takes, has room for 100,000 ledgers and more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from bkbox.audit.selection import format_ledgers, parse_ledgers
from bkbox.base.ids import LedgerId
from bkbox.base.words import error_text, quoted
from bkbox.errors import MetadataError, OperatorError, VersionConflictError
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.loglists import DATASET_PREFIX, log_name

_FORMAT = 1


@dataclass(frozen=True)
class Dataset:
    """``instance``: the cluster that the ledgers are of. Of streams that write, by their names: ``batches``, the last
    one that is published; ``swept``: below this id nothing is left that was abandoned."""

    instance: str
    ledgers: frozenset[int] = frozenset()
    doomed: frozenset[int] = frozenset()
    batches: dict[str, int] = field(default_factory=dict)
    swept: dict[str, int] = field(default_factory=dict)
    queue: tuple[tuple[int, int], ...] = ()
    """Of a log: ledgers whose entries are to be appended, in this order, and the sequence number of the first one."""
    next_sequence: int = 0


Change = Callable[[Dataset], Dataset]


class Datasets:
    """Those of one cluster."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def find(self, name: str) -> Dataset | None:
        """None: there is none of this name. Raises MetadataError."""
        found = await self._store.logs.find(_document(name), latest=True)
        return None if found is None else await self._decoded(name, found.value)

    async def read(self, name: str) -> Dataset:
        """Raises OperatorError where there is none, MetadataError."""
        found = await self.find(name)
        if found is None:
            raise OperatorError(
                f"there is no dataset {name}: nothing was ever published under this name"
            )
        return found

    async def change(self, name: str, change: Change) -> Dataset:
        """Replace the newest document, whoever else does so. Raises MetadataError, what ``change`` raises."""
        while True:
            stored = await self._store.logs.find(_document(name), latest=True)
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
        """Delete the ledgers that were taken off, and say so. Raises MetadataError."""
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
    """What publishes these ledgers; nothing where this writer's batch is there already."""

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
    """What publishes ledgers, each with its number of entries, to be appended to a log in this order; nothing where
    this writer's batch is there already."""

    def change(before: Dataset) -> Dataset:
        if writer and before.batches.get(writer, -1) >= batch:
            return before
        queue, number = list(before.queue), before.next_sequence
        for ledger, entries in new:
            if ledger not in before.ledgers | before.doomed:  # the answer to this change was lost
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
    """All entries of a ledger are in the log: it has to be deleted."""

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
    """The name of a log's document among those of datasets, none of which has a colon in its name."""
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
