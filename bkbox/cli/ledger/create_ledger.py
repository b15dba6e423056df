"""Creates the ledger of `bkbox ledger create` and `write`."""

from __future__ import annotations

from bkbox.base.commandline import cluster_command
from bkbox.cli.lib.options import NewLedger
from bkbox.cli.lib.output import message
from bkbox.client import LedgerWriter
from bkbox.client.client import Client
from bkbox.errors import NotEnoughBookiesError
from bkbox.protocol.quorum import QuorumSizes
from bkbox.wire.metadata.ledger import ACK_AFTER


async def create_ledger(
    client: Client, new: NewLedger, password: bytes | None, *, dry_run: bool
) -> LedgerWriter | None:
    """A writer of a new ledger; on a ``dry_run`` None, after printing the bookies that the ledger would get.

    Raises NotEnoughBookiesError, QuorumSizeError, MetadataError.
    """
    if dry_run:
        write = new.ensemble if new.write_quorum is None else new.write_quorum
        ack = write // 2 + 1 if new.ack_quorum is None else new.ack_quorum
        found = await client.placer.explain(QuorumSizes(new.ensemble, write, ack))
        if not found.is_complete:
            explained = cluster_command(
                "placement", "explain", "-E", new.ensemble, "-Q", write, "-A", ack
            )
            raise NotEnoughBookiesError(f"too few bookies: see `{explained}`")
        bookies = ", ".join(map(str, found.ensemble))
        message(f"would create a ledger, now on {bookies}; nothing was changed")
        return None
    return await client.create_ledger(
        ensemble_size=new.ensemble,
        write_quorum=new.write_quorum,
        ack_quorum=new.ack_quorum,
        digest_type=new.digest,
        password=password or b"",
        custom=None if new.ack_after is None else {ACK_AFTER: new.ack_after.encode()},
    )
