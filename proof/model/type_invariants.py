"""Domains of the variables of a state; a value outside of them is a mistake in the model itself."""

from __future__ import annotations

from proof.model.network import Code, Kind, Message
from proof.model.options import Options, Status
from proof.model.state import ActorView, Client, Fragments, Phase, Role, World


def world_in_domain(world: World, options: Options) -> bool:
    """The last entry is known once the ledger is closed; there is a fragment once it exists."""
    exists = world.status is not Status.NONE
    return (
        exists == bool(world.fragments) == bool(world.version)
        and _fragments(world.fragments, options)
        and (world.last == 0 or world.status is Status.CLOSED)
        and 0 <= world.last <= options.sends
        and 0 <= world.crashes <= options.crashes
    )


def client_in_domain(client: Client, options: Options) -> bool:
    """A client with a role has fragments; only a recovery has a phase, and responses to a read."""
    everybody = (1 << options.bookies) - 1
    sets = (client.fenced, client.has, client.has_not, client.unknown, *client.acks)
    return (
        (client.role is Role.IDLE) == (not client.fragments)
        and _fragments(client.fragments, options)
        and (client.phase is Phase.NONE or client.role is not Role.WRITER)
        and len(client.acks) == options.sends
        and all(0 <= some <= everybody for some in sets)
        and 0 <= client.lac <= client.pushed
        and 0 <= client.body <= options.sends
        and list(client.pending) == sorted(set(client.pending))
        and all(
            1 <= add.entry <= client.pushed
            and 1 <= add.body <= options.sends
            and 0 <= add.fragment < len(client.fragments)
            for add in client.pending
        )
    )


def part_in_domain(part: ActorView, options: Options) -> bool:
    """Entries, LAC and messages are of this ledger and these clients."""
    return (
        list(part.entries) == sorted(set(part.entries))
        and all(1 <= entry <= options.sends + 1 for entry, _ in part.entries)
        and 0 <= part.lac <= options.sends
        and list(part.mail) == sorted(dict(part.mail).items())
        and all(_message(message, options) for message, _ in part.mail)
    )


def _fragments(fragments: Fragments, options: Options) -> bool:
    return all(
        fragment.ensemble.bit_count() == options.write_quorum
        and fragment.ensemble < 1 << options.bookies
        and 1 <= fragment.first <= options.sends + 1
        for fragment in fragments
    )


def _message(message: Message, options: Options) -> bool:
    codes = {
        Kind.ADDED: (Code.OK, Code.FENCED),
        Kind.RESPONSE: (Code.OK, Code.NO_SUCH_ENTRY, Code.UNKNOWN),
    }.get(message.kind, (Code.OK,))
    return (
        0 <= message.client < options.clients
        and 0 <= message.entry <= options.sends + 1
        and 0 <= message.body <= options.sends
        and 0 <= message.lac <= options.sends
        and message.code in codes
    )
