"""The writer: creates the ledger, sends entries, replaces bookies, closes.

It closes at any moment, unless the metadata has changed under it; a response 'fenced' makes it withdraw.
"""

from __future__ import annotations

from collections.abc import Iterator

from proof.model.ensembles import (
    add_request,
    earliest_responses,
    pick_ensemble,
    receive_acks,
    replace_bookies,
    resend,
)
from proof.model.network import Code, done
from proof.model.options import Options, Status
from proof.model.state import ActorView, Client, Fragment, Pending, Role, World
from proof.model.steps import Step, send


def moves(world: World, client: Client, me: int, options: Options) -> Iterator[Step]:
    """All steps that a writer, or a client that may become it, can take by itself."""
    name = f"client {me + 1}"
    if world.status is Status.NONE and client.version == 0:
        yield _create(world, client, name, options)
    if client.role is not Role.WRITER:
        return
    if client.pushed < options.sends:
        yield _send_next(client, me, name)
    is_current = world.status is Status.OPEN and world.version == client.version
    if is_current and not any(f.first > client.lac + 1 for f in world.fragments):
        for after, deliveries, words in replace_bookies(world, client, me, options, recovery=False):
            changed = world._replace(fragments=after.fragments, version=world.version + 1)
            after = after._replace(version=changed.version)
            yield Step(words, world=changed, client=after, deliveries=deliveries)
    yield from resend(client, me, recovery=False)
    if is_current:
        closed = world._replace(status=Status.CLOSED, last=client.lac, version=world.version + 1)
        after = client._replace(role=Role.CLOSED, version=closed.version)
        yield Step(f"{name} closes the ledger at {client.lac}", world=closed, client=after)
    if world.status is not Status.OPEN and world.version != client.version:
        after = client._replace(role=Role.WITHDRAWN, version=0)
        yield Step(f"{name} cannot close: the metadata has changed", client=after)


def receive(
    client: Client, part: ActorView, me: int, bookie: int, options: Options
) -> Iterator[Step]:
    """The steps of a writer that accepts responses from one bookie."""
    if client.role is not Role.WRITER:
        return
    yield from receive_acks(client, part, me, bookie, options, recovery=False)
    if not client.fragments[-1].ensemble >> bookie & 1:
        return
    for response in earliest_responses(part, me, options, recovery=False):
        if response.code is Code.FENCED:
            words = f"client {me + 1} learns from bookie {bookie + 1} that it is fenced"
            after = client._replace(role=Role.WITHDRAWN)
            yield Step(words, client=after, part=part._replace(mail=done(part.mail, response)))


def _create(world: World, client: Client, name: str, options: Options) -> Step:
    fragments = (Fragment(pick_ensemble(world, 0, 0, options), 1),)
    created = world._replace(status=Status.OPEN, fragments=fragments, version=1)
    after = client._replace(role=Role.WRITER, fragments=fragments, version=1)
    return Step(f"{name} creates the ledger", world=created, client=after)


def _send_next(client: Client, me: int, name: str) -> Step:
    entry = client.pushed + 1
    ensemble = client.fragments[-1].ensemble
    add = Pending(entry, entry, len(client.fragments) - 1, ensemble)
    after = client._replace(pushed=entry, pending=(*client.pending, add))
    request = add_request(client, me, add, recovery=False)
    return Step(f"{name} sends entry {entry}", client=after, deliveries=send(ensemble, request))
