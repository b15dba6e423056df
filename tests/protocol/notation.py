"""How effects, metadata and answers are written in playbooks and scenario transcripts."""

from __future__ import annotations

from collections.abc import Sequence

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.protocol.effects import (
    Acked,
    Closed,
    CloseFailed,
    Effect,
    EntryFound,
    Failed,
    Forced,
    LacFound,
    PickReplacements,
    Polled,
    ReadMetadata,
    Recovered,
    SendAdds,
    SendForce,
    SendPoll,
    SendRead,
    SendReadLac,
    WriteMetadata,
)
from bkbox.protocol.events import NoResponse, RequestStatus
from bkbox.wire.codes import Code
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState

LEDGER = LedgerId(7)


def ledger(
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
    fragments: str | None = None,
    state: LedgerState = LedgerState.OPEN,
    last_entry: int = -1,
    length: int = 0,
) -> LedgerMetadata:
    """Metadata of ledger 7; fragments as ``0:b1,b2 5:b1,b3``, without them one of b1, b2, …"""
    if fragments is None:
        fragments = "0:" + ",".join(f"b{number + 1}" for number in range(ensemble_size))
    return LedgerMetadata(
        LEDGER,
        ensemble_size,
        write_quorum,
        ack_quorum,
        state,
        parse_fragments(fragments),
        EntryId(last_entry),
        length,
    )


def parse_fragments(text: str) -> tuple[Fragment, ...]:
    pairs = (part.split(":") for part in text.split())
    return tuple(
        Fragment(EntryId(int(first)), tuple(map(BookieId, names.split(","))))
        for first, names in pairs
    )


def show_metadata(metadata: LedgerMetadata) -> str:
    fragments = " ".join(f"{f.first_entry}:{','.join(f.ensemble)}" for f in metadata.fragments)
    if metadata.state is LedgerState.CLOSED:
        return f"CLOSED at {metadata.last_entry} length {metadata.length} {fragments}"
    return f"{metadata.state.name} {fragments}"


def parse_metadata(text: str, like: LedgerMetadata) -> LedgerMetadata:
    """The inverse of show_metadata; sizes are those of ``like``."""
    state, _, rest = text.partition(" ")
    last, length = -1, 0
    if state == "CLOSED":
        _at, last_text, _length, length_text, rest = rest.split(" ", 4)
        last, length = int(last_text), int(length_text)
    return ledger(
        like.ensemble_size,
        like.write_quorum,
        like.ack_quorum,
        rest,
        LedgerState[state],
        last,
        length,
    )


def parse_answer(text: str) -> RequestStatus:
    words = {"lost": NoResponse.CONNECTION_LOST, "timeout": NoResponse.TIMEOUT}
    words["rotten"] = NoResponse.BAD_DIGEST
    return words[text] if text in words else Code["EOK" if text == "ok" else text]


def show_entry(entry: VerifiedEntry) -> str:
    return f"{entry.entry_id} lac {entry.lac} length {entry.length} {entry.payload.decode()}"


def show_range(entries: Sequence[int]) -> str:
    """``3``, ``3..5`` or, with gaps, ``3,5``."""
    first, last = entries[0], entries[-1]
    if len(entries) == 1:
        return str(first)
    if len(entries) == last - first + 1:
        return f"{first}..{last}"
    return ",".join(map(str, entries))


def parse_range(text: str) -> tuple[EntryId, EntryId]:
    """First and last of ``3`` or ``3..5``."""
    first, _, last = text.partition("..")
    return EntryId(int(first)), EntryId(int(last or first))


def show_adds(effect: SendAdds) -> str:
    """``add 3 …``, or ``adds 3..5 …``; what only some targets get is named with them. The length
    is that with the last entry."""
    kind = "recovery add" if effect.recovery else "add"
    kind = "deferred add" if effect.deferred_sync else kind
    entries = sorted({entry for target in effect.targets for entry in target.entries})
    kind += "s" * (len(entries) > 1)
    length = effect.length + sum(map(len, effect.payloads[: entries[-1] - effect.first + 1]))
    names = " ".join(
        target.bookie
        if len(target.entries) == len(entries)
        else f"{target.bookie}:{show_range(target.entries)}"
        for target in effect.targets
    )
    return f"{kind} {show_range(entries)} lac {effect.lac} length {length} to {names}"


def show(effect: Effect) -> str:
    """One effect on one line, without tokens."""
    match effect:
        case SendAdds():
            return show_adds(effect)
        case SendRead():
            kind = "fencing read" if effect.fence else "read"
            return f"{kind} {effect.entry_id} from {effect.bookie}"
        case SendForce():
            return f"force {' '.join(target.bookie for target in effect.targets)}"
        case SendReadLac():
            return f"read lac from {effect.bookie}"
        case SendPoll():
            how = "wait" if effect.wait else "answer at once"
            return f"poll {effect.bookie} above {effect.previous_lac}, {how}"
        case ReadMetadata():
            return "read metadata"
        case WriteMetadata():
            return f"write over {effect.expected_version}: {show_metadata(effect.metadata)}"
        case PickReplacements():
            return f"pick for {' '.join(effect.failed)} of {' '.join(effect.ensemble)}"
        case Acked():
            return f"acked {effect.first}..{effect.last}"
        case Failed():
            return f"failed {type(effect.error).__name__}"
        case Closed():
            return f"closed: {show_metadata(effect.metadata)}"
        case CloseFailed():
            return f"close failed {type(effect.error).__name__}"
        case EntryFound():
            return f"found {show_entry(effect.entry)}"
        case LacFound():
            return f"lac {effect.lac}"
        case Forced():
            return f"forced {effect.lac}"
        case Polled():
            entry = "nothing" if effect.entry is None else show_entry(effect.entry)
            return f"lac {effect.lac}, {entry}"
        case Recovered():
            return f"recovered: {show_metadata(effect.metadata)}"
