"""Actions common to writers and recoveries: count acknowledgements, replace a bookie of the ensemble, send again.

A bookie whose add timed out is replaced from the first unconfirmed entry on. Pending adds are then sent to the new
bookies, lowest entry first; before that is done for all, no other bookie is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from proof.model.network import Code, Kind, Message, done, is_earliest, waiting
from proof.model.options import Options
from proof.model.state import ActorView, Client, Fragment, Fragments, Pending, World, members
from proof.model.steps import Deliveries, Delivery, Step, Task, send


def fragment_of(entry: int, fragments: Fragments) -> Fragment:
    """The fragment that an entry belongs to: the last one that begins at it or before."""
    return next(
        (fragment for fragment in reversed(fragments) if fragment.first <= entry), fragments[0]
    )


def pick_ensemble(world: World, include: int, exclude: int, options: Options) -> int:
    """The one ensemble that will be picked; 0 if there is none."""
    used = {fragment.ensemble for fragment in world.fragments}
    for chosen in combinations(range(options.bookies), options.write_quorum):
        ensemble = sum(1 << bookie for bookie in chosen)
        if ensemble & include == include and not ensemble & exclude and ensemble not in used:
            return ensemble
    return 0


def add_request(client: Client, me: int, pending: Pending, *, recovery: bool) -> Message:
    """The add of an entry, as the client sends it now."""
    return Message(Kind.ADD, me, pending.entry, pending.body, recovery, client.lac)


def receive_acks(
    client: Client, part: ActorView, me: int, bookie: int, options: Options, *, recovery: bool
) -> Iterator[Step]:
    """A successful response to an add, from a bookie of the ensemble."""
    if not client.fragments[-1].ensemble >> bookie & 1:
        return
    for response in earliest_responses(part, me, options, recovery=recovery):
        if response.code is Code.OK:
            after = acknowledged(client, response.entry, bookie, options)
            words = f"client {me + 1} takes bookie {bookie + 1}'s ack of entry {response.entry}"
            yield Step(words, client=after, part=part._replace(mail=done(part.mail, response)))


def earliest_responses(
    part: ActorView, me: int, options: Options, *, recovery: bool
) -> list[Message]:
    """The responses to adds that this client may accept from a bookie now."""
    per_client = options.corrections.per_client
    return [
        response
        for response in waiting(part.mail, Kind.ADDED)
        if response.client == me
        and response.recovery == recovery
        and is_earliest(part.mail, response, per_client=per_client)
    ]


def acknowledged(client: Client, entry: int, bookie: int, options: Options) -> Client:
    """The client after one more acknowledgement, with its LAC advanced and confirmed entries no longer pending."""
    acks = list(client.acks)
    acks[entry - 1] |= 1 << bookie
    enough = [bookies.bit_count() >= options.ack_quorum for bookies in acks]
    lac = client.lac if options.corrections.lac_counts else 0
    while lac < len(enough) and enough[lac]:
        lac += 1
    pending = tuple(add for add in client.pending if add.entry > lac or not enough[add.entry - 1])
    return client._replace(acks=tuple(acks), lac=max(lac, client.lac), pending=pending)


def replace_bookies(
    world: World, client: Client, me: int, options: Options, *, recovery: bool
) -> Iterator[tuple[Client, Deliveries, str]]:
    """(client afterwards, deliveries, description) for each bookie of the ensemble that could be replaced.

    The properties check that the resulting fragments are in order: a writer ensures it itself.
    """
    fragments = client.fragments
    current = fragments[-1]
    if any(_is_to_be_resent(add, client) for add in client.pending):
        return
    first = client.lac + 1
    for bookie in members(current.ensemble):
        ensemble = pick_ensemble(world, current.ensemble & ~(1 << bookie), 1 << bookie, options)
        if not ensemble:
            continue
        if first == current.first:
            changed = (*fragments[:-1], Fragment(ensemble, first))
        else:
            changed = (*fragments, Fragment(ensemble, first))
        acks = tuple(
            bookies & ~(1 << bookie) if entry >= first else bookies
            for entry, bookies in enumerate(client.acks, 1)
        )
        timed_client = me if options.corrections.per_client else None
        timeout = Delivery(Task.WRITE_TIMEOUT_ENDS, client=timed_client, recovery=recovery)
        new = ensemble & ~current.ensemble
        words = (
            f"client {me + 1} puts bookie {new.bit_length()} in the place of bookie {bookie + 1} "
            f"from entry {first} on"
        )
        yield client._replace(fragments=changed, acks=acks), ((bookie, timeout),), words


def resend(client: Client, me: int, *, recovery: bool) -> Iterator[Step]:
    """Sends a pending add to the bookies that are new to it."""
    current = client.fragments[-1]
    for add in client.pending:
        alike = [
            other.entry
            for other in client.pending
            if (other.fragment, other.ensemble) == (add.fragment, add.ensemble)
        ]
        if not _is_to_be_resent(add, client) or add.entry > min(alike):
            continue
        moved = add._replace(fragment=len(client.fragments) - 1, ensemble=current.ensemble)
        after = client._replace(
            pending=tuple(moved if other == add else other for other in client.pending),
            written=client.written | (1 << add.entry if recovery else 0),
        )
        new = current.ensemble & ~add.ensemble
        request = add_request(client, me, add, recovery=recovery)
        words = f"client {me + 1} sends entry {add.entry} to the bookies that are new to it"
        yield Step(words, client=after, deliveries=send(new, request))


def _is_to_be_resent(add: Pending, client: Client) -> bool:
    return (add.fragment, add.ensemble) != (
        len(client.fragments) - 1,
        client.fragments[-1].ensemble,
    )
