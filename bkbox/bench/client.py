"""``bkbox bench client``: the rate at which one program appends to a ledger and reads it back, digests included.

One ledger or log, which is deleted at the end, one event loop, a closed loop of ``window`` appends. An append is timed
from the call until its ack quorum has acknowledged it. Reads go over all of it again and again, from its bookies'
caches.
"""

from __future__ import annotations

from bkbox.bench import async_client, sync_client
from bkbox.bench.client_plan import ClientPlan, ClientResult


def run(metadata: str, plan: ClientPlan) -> ClientResult:
    """Raises what the client raises."""
    load = sync_client.run if plan.through == "sync" else async_client.run
    return load(metadata, plan)
