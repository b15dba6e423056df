"""Tells if any recovery can close the ledger while a given number of bookies of its ensemble are in limbo.

Limbo is safe because a bookie in it never denies an entry, and so the end of a ledger may never be found: it
takes as many plain negatives as leave no ack quorum outside. If no message is lost and no recovery can close, the
ledger stays in recovery for ever.

The question is put as a search for a state in which a recovery has closed the ledger although that many bookies are in
limbo: an exhausted search without one covers all behaviours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bkbox.base.values import replaced
from proof.model.options import Clearing, Loss, Options, Status
from proof.model.properties import Outline
from proof.model.search import Result, Statistics, search
from proof.model.state import ActorView, Client, Phase, Role, World


class _Closed:
    """Finds a ledger that a recovery has closed with ``limbo`` bookies in limbo."""

    names = ("closed-by-recovery",)

    def __init__(self, limbo: int, clients: int) -> None:
        self._limbo = limbo
        self._clients = clients

    def of_world(self, world: World) -> Outline:
        return world.status is Status.CLOSED

    def of_client(self, client: Client) -> Outline:
        return client.role is Role.CLOSED and client.phase is not Phase.NONE

    def of_part(self, part: ActorView) -> Outline:
        return part.limbo

    def broken(self, seen: Sequence[Any]) -> int:
        clients, parts = seen[1 : 1 + self._clients], seen[1 + self._clients :]
        return int(seen[0] and any(clients) and sum(parts) == self._limbo)


def closable(
    options: Options, limbo: int, *, progress: Callable[[Statistics], None] = lambda _: None
) -> Result:
    """A Result with ``broken`` if a recovery can close, with the shortest trace; exhausted if none ever can.

    Every bookie in limbo crashed once while the ledger was open; no message is lost.
    """
    asked = replaced(
        options,
        crashes=limbo,
        windows=(Status.OPEN,),
        message_loss=False,
        limbo=True,
        loss=Loss.BOOKIE,
        clearing=Clearing.NEVER,
        unnoticed=False,
    )
    goal = _Closed(limbo, options.clients)
    return search(asked, fold=True, properties=goal, progress=progress)
