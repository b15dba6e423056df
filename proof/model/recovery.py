"""A recovering client: fences, reads on from the LAC, writes back what it found, closes.

The phases are separate, unlike in the implementations; it makes no difference to what may be lost. A read waits for
all of the write quorum (responses and timeouts), unless ``early_reads``; then it succeeds with enough bookies that have
the entry, or has found the end with so many plain negatives that no ack quorum is left. In any other case nothing
can be concluded and this recovery never ends (``failed_reads``: it fails, and another client may try).

Responses are accepted in any phase of the client; one that belongs to a read that has ended counts for the next. With
``early_reads`` it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations

from proof.model.ensembles import (
    add_request,
    fragment_of,
    receive_acks,
    replace_bookies,
    resend,
)
from proof.model.network import (
    Code,
    Kind,
    Message,
    done,
    has_read_timeout,
    waiting,
    without_read_timeouts,
)
from proof.model.options import Options, Status
from proof.model.state import ActorView, Client, Pending, Phase, Role, World, members
from proof.model.steps import Deliveries, Delivery, Step, Task, send, to_each


def moves(world: World, client: Client, me: int, options: Options) -> Iterator[Step]:
    """All steps that a recovering client, or one that may become it, can take by itself."""
    if client.role is Role.IDLE and world.status in (Status.OPEN, Status.RECOVERING):
        yield _start(world, client, me)
    if client.role is not Role.RECOVERING:
        return
    if client.phase is Phase.READING or (
        client.phase is Phase.FENCING and _covered(client, options)
    ):
        yield _ask(client, me)
    if client.phase is Phase.WRITING:
        yield from _write_back(client, me)
    if world.status is Status.RECOVERING:
        for after, deliveries, words in replace_bookies(world, client, me, options, recovery=True):
            yield Step(words, client=after, deliveries=deliveries)
    yield from resend(client, me, recovery=True)
    yield from _close(world, client, me, options)


def receive(
    client: Client, part: ActorView, requested: bool, me: int, bookie: int, options: Options
) -> Iterator[Step]:
    """The steps of a client that accepts responses from one bookie.

    ``requested``: any client has sent a recovery read.
    """
    for response in waiting(part.mail, Kind.FENCED):
        if response.client == me:
            yield _fenced(client, part, response, requested, bookie, options)
    for response in waiting(part.mail, Kind.RESPONSE):
        if response.client == me:
            yield from _read(client, part, response, bookie, options)
    if client.role is Role.RECOVERING:
        yield from receive_acks(client, part, me, bookie, options, recovery=True)


def _start(world: World, client: Client, me: int) -> Step:
    version = world.version + 1
    after = client._replace(
        role=Role.RECOVERING,
        version=version,
        fragments=world.fragments,
        phase=Phase.FENCING,
    )
    return Step(
        f"client {me + 1} starts a recovery",
        world=world._replace(status=Status.RECOVERING, version=version),
        client=after,
        deliveries=send(world.fragments[-1].ensemble, Message(Kind.FENCE, me)),
    )


def _covered(client: Client, options: Options) -> bool:
    """True if every ack quorum of the ensemble has a fenced bookie."""
    fenced = (client.fenced & client.fragments[-1].ensemble).bit_count()
    return fenced >= options.negatives


def _fenced(
    client: Client,
    part: ActorView,
    response: Message,
    requested: bool,
    bookie: int,
    options: Options,
) -> Step:
    lac = response.lac
    if options.lac_floor:
        lac = max(lac, client.fragments[-1].first - 1)
    after = client._replace(fenced=client.fenced | 1 << bookie)
    if not requested and lac > client.lac:
        after = after._replace(lac=lac, pushed=lac)
    words = f"client {response.client + 1} learns that bookie {bookie + 1} is fenced, LAC {response.lac}"
    return Step(words, client=after, part=part._replace(mail=done(part.mail, response)))


def _ask(client: Client, me: int) -> Step:
    entry = client.pushed + 1
    return Step(
        f"client {me + 1} asks for entry {entry}",
        client=client._replace(phase=Phase.AWAITING),
        deliveries=send(
            fragment_of(entry, client.fragments).ensemble, Message(Kind.READ, me, entry)
        ),
        asks=True,
    )


def _read(
    client: Client, part: ActorView, response: Message, bookie: int, options: Options
) -> Iterator[Step]:
    rules = options.corrections
    me = response.client
    counted = client._replace(
        has=client.has | (response.code is Code.OK) << bookie,
        has_not=client.has_not | (response.code is Code.NO_SUCH_ENTRY) << bookie,
        unknown=client.unknown | (response.code is Code.UNKNOWN) << bookie,
        body=response.body or client.body,
        fenced=client.fenced | options.recovery_reads_fence << bookie,
    )
    received = part._replace(mail=done(part.mail, response))
    words = f"client {me + 1} takes bookie {bookie + 1}'s response ({_describe(response)})"
    ensemble = _queried(client, response, options)
    timed_client = me if rules.per_client else None
    if rules.early_reads:
        current = response.entry == client.pushed + 1 and client.phase is Phase.AWAITING
        if not current:
            yield Step(f"{words}, too late", client=client, part=received)
            return
    for silent in _subsets(ensemble & ~(1 << bookie)):
        missing = silent.bit_count()
        if ensemble >> bookie & 1 and has_read_timeout(part.mail, timed_client):
            missing += 1
        heard = (counted.has, counted.has_not, counted.unknown)
        complete = sum(bookies.bit_count() for bookies in heard) + missing == options.write_quorum
        ends = list(_ends(counted, complete, words, options))
        for step in ends:
            deliveries = _timeouts(ensemble, silent, bookie, timed_client, Task.READ_TIMEOUT_ENDS)
            after = received
            if ensemble >> bookie & 1:
                after = received._replace(mail=without_read_timeouts(received.mail, timed_client))
            yield step._replace(part=after, deliveries=deliveries)
        deliveries = _timeouts(ensemble, silent, bookie, timed_client, Task.READ_TIMEOUT)
        if complete and not ends and rules.failed_reads:
            failed = counted._replace(role=Role.WITHDRAWN)
            yield Step(f"{words} and gives up", client=failed, part=received, deliveries=deliveries)
        elif not ends and (rules.early_reads or not complete):
            yield Step(words, client=counted, part=received, deliveries=deliveries)


def _ends(client: Client, complete: bool, words: str, options: Options) -> Iterator[Step]:
    """The end of a read with these responses."""
    rules = options.corrections
    enough = 1 if rules.first_holder or rules.early_reads else options.ack_quorum
    found = client.has.bit_count() >= enough
    ended = client.has_not.bit_count() >= options.negatives
    if not (complete or rules.early_reads):
        return
    cleared = client._replace(has=0, has_not=0, unknown=0, body=0)
    if found:
        entry = client.pushed + 1
        add = Pending(entry, client.body, len(client.fragments) - 1, client.fragments[-1].ensemble)
        after = cleared._replace(pushed=entry, pending=(*client.pending, add), phase=Phase.READING)
        yield Step(f"{words}: entry {entry} exists", client=after)
    elif ended:
        words = f"{words}: the ledger ends at {client.pushed}"
        yield Step(words, client=cleared._replace(phase=Phase.WRITING))


def _queried(client: Client, response: Message, options: Options) -> int:
    """The bookies whose timeouts count for the read that a response belongs to."""
    if response.entry:
        return fragment_of(response.entry, client.fragments).ensemble
    if options.corrections.timeouts_of_the_read:
        return fragment_of(client.pushed + 1, client.fragments).ensemble
    return 0


def _timeouts(
    ensemble: int, silent: int, bookie: int, timed_client: int | None, task: Task
) -> Deliveries:
    heard = ensemble & ~silent & ~(1 << bookie)
    return (
        *to_each(silent, Delivery(task, client=timed_client)),
        *to_each(heard, Delivery(Task.NO_READ_TIMEOUT, client=timed_client)),
    )


def _subsets(bookies: int) -> Iterator[int]:
    bits = [1 << bookie for bookie in members(bookies)]
    sizes = (combinations(bits, size) for size in range(len(bits) + 1))
    return (sum(chosen) for chosen in chain.from_iterable(sizes))


def _write_back(client: Client, me: int) -> Iterator[Step]:
    unsent = [add for add in client.pending if not client.written >> add.entry & 1]
    if not unsent:
        return
    add = min(unsent)
    yield Step(
        f"client {me + 1} writes entry {add.entry} back",
        client=client._replace(written=client.written | 1 << add.entry),
        deliveries=send(client.fragments[-1].ensemble, add_request(client, me, add, recovery=True)),
    )


def _close(world: World, client: Client, me: int, options: Options) -> Iterator[Step]:
    may = (
        client.phase is Phase.WRITING
        and not client.pending
        and world.status is Status.RECOVERING
        and world.version == client.version
    )
    if not options.corrections.fragments_at_close:
        may = may and client.fragments == world.fragments
    if may:
        closed = world._replace(
            status=Status.CLOSED,
            last=client.lac,
            version=world.version + 1,
            fragments=client.fragments,
        )
        after = client._replace(role=Role.CLOSED, version=closed.version)
        words = f"client {me + 1} closes the ledger at {client.lac}"
        yield Step(words, world=closed, client=after)


def _describe(response: Message) -> str:
    return {
        Code.OK: f"entry {response.entry}",
        Code.NO_SUCH_ENTRY: "no such entry",
        Code.UNKNOWN: "unknown",
    }[response.code]
