"""Crashes, the marks that the following boot makes, and the clearing of limbo.

A crash is instantaneous: the bookie is back at once. Requests in flight to it are lost; its own messages are not.
What else is lost depends on the class:

- ``Loss.BOOKIE``: all that the bookie had of the ledger; an unclean boot fences it and puts it into limbo.
- ``Loss.DISK``: one of two disks. That of the ledger: the same. The other: nothing of the ledger is lost, and the boot
  does not mark what a disk that lost nothing records; but a ledger that is recorded nowhere is marked all the same.
- ``Loss.PROCESS``: nothing; nothing is marked.
- ``Loss.DEVICE``: the entries, and nothing that was synced. The kernel's boot id is the same: a boot that does not
  compare mounts takes it for the crash of a process.

With ``copies``, a closed ledger may be copied to a bookie that no ensemble names; a later step names it in the
metadata, as Java's recoverBookieData does.

A fence is lost with the entries, unless it is durable. A boot that does not notice that the shutdown was unclean marks
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from proof.model.network import requests_lost
from proof.model.options import Clearing, Loss, Marks, Options, Status
from proof.model.state import ActorView, World, members
from proof.model.steps import Step

_WHAT = {
    Loss.BOOKIE: "crashes",
    Loss.DISK: "loses the ledger's disk",
    Loss.DEVICE: "loses what its device had not been given",
}


def moves(world: World, part: ActorView, bookie: int, options: Options) -> Iterator[Step]:
    """All steps of a bookie other than messages."""
    name = f"bookie {bookie + 1}"
    if world.crashes < options.crashes and world.status in options.windows:
        yield from _crashes(world, part, bookie, options, name)
    cleared = options.clearing is Clearing.ANY_TIME or (
        options.clearing is Clearing.AFTER_CLOSE and world.status is Status.CLOSED
    )
    if part.limbo and cleared:
        yield Step(f"{name} clears limbo", part=part._replace(limbo=False))
    if options.copies and world.status is Status.CLOSED and world.last:
        yield from _copies(world, part, bookie, name)


def _copies(world: World, part: ActorView, bookie: int, name: str) -> Iterator[Step]:
    """The whole closed ledger is copied to a bookie that it does not name; then the last ensemble names it."""
    if _is_named(world, bookie):
        return
    if not part.copied:
        entries = tuple((entry, entry) for entry in range(1, world.last + 1))
        yield Step(f"{name} stores a copy", part=part._replace(entries=entries, copied=True))
        return
    last = world.fragments[-1]
    for other in members(last.ensemble):
        ensemble = last.ensemble & ~(1 << other) | 1 << bookie
        fragments = (*world.fragments[:-1], last._replace(ensemble=ensemble))
        after = world._replace(fragments=fragments)  # its version is never compared
        yield Step(f"the metadata names {name} in the place of bookie {other + 1}", world=after)


def _is_named(world: World, bookie: int) -> bool:
    return any(fragment.ensemble >> bookie & 1 for fragment in world.fragments)


def _crashes(
    world: World, part: ActorView, bookie: int, options: Options, name: str
) -> Iterator[Step]:
    after = world._replace(crashes=world.crashes + 1)
    mail = requests_lost(part.mail)
    intact = part._replace(mail=mail)
    if options.loss is Loss.PROCESS:
        yield Step(f"the process of {name} crashes: entries kept", world=after, part=intact)
        return
    if options.loss is Loss.DEVICE:
        lost = part._replace(entries=(), lac=0, mail=mail)
    else:
        fenced = options.durable_fence and part.fenced
        lost = ActorView(fenced=fenced, limbo=part.limbo, mail=mail, copied=part.copied)
    fence, limbo = _marks(world, part, bookie, options)
    if options.loss is Loss.DEVICE and not options.mounts:
        fence = limbo = False
    marked = lost._replace(fenced=lost.fenced or fence, limbo=lost.limbo or limbo)
    what = _WHAT[options.loss]
    yield Step(_label(name, what, marked), world=after, part=marked)
    if options.unnoticed:
        yield Step(_label(name, f"{what}, unnoticed", lost), world=after, part=lost)
    if options.loss is Loss.DISK:
        recorded = bool(part.entries) or part.fenced or part.limbo
        if recorded:
            words = f"{name} loses its other disk: nothing of the ledger"
            yield Step(words, world=after, part=intact)
        else:
            yield Step(_label(name, "loses its other disk", marked), world=after, part=marked)


def _marks(world: World, part: ActorView, bookie: int, options: Options) -> tuple[bool, bool]:
    """True, first, if the boot fences the ledger; second, if it puts the ledger into limbo."""
    fence, limbo = options.fence, options.limbo
    if options.marks is Marks.NOT_CLOSED and world.status is Status.CLOSED:
        return False, False
    if options.marks is Marks.NAMED:
        named = _is_named(world, bookie)
        recorded = options.records and part.copied
        fence = fence and (named or world.status is not Status.OPEN)
        limbo = limbo and (named or recorded or world.status is Status.RECOVERING)
    return fence, limbo


def _label(name: str, what: str, part: ActorView) -> str:
    marks = [word for word, on in (("fenced", part.fenced), ("in limbo", part.limbo)) if on]
    return f"{name} {what}: " + ", ".join(["entries gone", *marks])
