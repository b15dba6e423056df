"""Renames the bookies or clients of a state.

An order gives the new number of each. Clients are distinguished by messages only, bookies by the sets in clients; the
fragments of the metadata are not changed, because bookies are renamed only if each ensemble has all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from proof.model.state import ActorView, Client, Fragment, members


def renamed_part(part: ActorView, clients: Sequence[int]) -> ActorView:
    """A part after the clients were renumbered."""
    mail = sorted(
        (message._replace(client=clients[message.client]), fate) for message, fate in part.mail
    )
    return part._replace(mail=tuple(mail))


def renamed_client(client: Client, bookies: Sequence[int]) -> Client:
    """A client after the bookies were renumbered."""

    def renamed(some: int) -> int:
        return sum(1 << bookies[bookie] for bookie in members(some))

    return client._replace(
        fragments=tuple(
            Fragment(renamed(fragment.ensemble), fragment.first) for fragment in client.fragments
        ),
        pending=tuple(add._replace(ensemble=renamed(add.ensemble)) for add in client.pending),
        acks=tuple(map(renamed, client.acks)),
        fenced=renamed(client.fenced),
        has=renamed(client.has),
        has_not=renamed(client.has_not),
        unknown=renamed(client.unknown),
    )
