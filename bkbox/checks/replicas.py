"""Ledgers that lack replicas: those of a bookie, by the metadata store; those of the cluster, by a status document."""

from __future__ import annotations

from collections.abc import Iterator

from bkbox.api.admin.status import Status
from bkbox.base.commandline import cluster_command
from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.text import counted
from bkbox.checks.registry import REPLICAS, Finding
from bkbox.config.schema import Config
from bkbox.errors import MetadataError, NoSuchLedgerError
from bkbox.metadata import connect
from bkbox.metadata.base import MetadataStore


def in_cluster(status: Status) -> Iterator[Finding]:
    """Checks that no ledger of the cluster lacks replicas, by the bookie's last report of it."""
    found = status.autorecovery
    if found.under_replicated is None or found.problem:
        why = found.problem or "it has not looked yet"
        yield REPLICAS.warn(f"the bookie does not say whether ledgers lack replicas: {why}")
    elif found.under_replicated:
        yield REPLICAS.warn(
            f"{counted(found.under_replicated, 'ledger', 'lack')} replicas in the cluster: see "
            f"`{cluster_command('autorecovery', 'list')}`"
        )


async def of_bookie(config: Config, wait_s: float) -> list[Finding]:
    """Checks that no ledger that names this bookie lacks replicas."""
    bookie = BookieId(config.bookie_id)
    try:
        async with await connect(config.metadata, wait_s) as opened:
            async for ledger in opened.under_replication.ledgers():
                if await _names(opened, ledger, bookie):
                    text = (
                        f"ledger {ledger} lacks replicas and names this bookie; there may be more: see "
                        f"`{cluster_command('autorecovery', 'list')}`"
                    )
                    return [REPLICAS.warn(text)]
    except MetadataError as error:
        text = f"the metadata store does not say whether ledgers lack replicas: {error}"
        return [REPLICAS.warn(text)]
    return []


async def _names(opened: MetadataStore, ledger: LedgerId, bookie: BookieId) -> bool:
    mark = await opened.under_replication.find(ledger)
    if mark is None:
        return False
    try:
        named = (await opened.read_ledger(ledger)).value.bookies()
    except NoSuchLedgerError:
        return False
    return bookie in named or bookie in mark.replicas
