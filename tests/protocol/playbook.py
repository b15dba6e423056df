"""Playbooks: what goes into one machine (``>>``) and what comes out of it (``<<``), line by line.

    >> append hello              three entries at once: >> append a,bb,c
    >> close           >> back b1        >> speculate   >> force
    >> b1 add 0 ok               or to a run of them: b1 add 0..2 ok
                                 an answer: ok, EIO, EFENCED, …, lost, timeout, rotten
    >> b1 add 0 ok@2             the same, on the second connection; without @ it is the first
    >> b1 force ok@2
    >> b1 lac 3 ok               or: b1 lac none EIO
    >> b1 poll ok lac 4 length 6 x                  or: ok lac 3, or without one: EIO
    >> b1 read 5 ok lac 4 length 6 x
    >> picked b4                 or: picked none
    >> written 2                 >> conflict        >> unavailable
    >> metadata 3 IN_RECOVERY 0:b1,b2,b3            version first

Adds and reads of one bookie are answered oldest first. ``play`` runs the events and compares every
effect, in order, with the lines that follow the event.
"""

from __future__ import annotations

from collections import defaultdict
from difflib import ndiff
from textwrap import dedent
from typing import Any

from bkbox.base.ids import BookieId, EntryId
from bkbox.errors import MetadataUnavailableError
from bkbox.protocol import effects as fx
from bkbox.protocol import events as ev
from bkbox.wire.digest import VerifiedEntry
from tests.protocol.notation import parse_answer, parse_metadata, parse_range, show


class Player:
    """One machine, and the tokens that it waits for."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self._tokens: dict[str, list[int]] = defaultdict(list)
        self._polled = -1

    def play(self, text: str) -> None:
        script = [line.strip() for line in dedent(text).strip().splitlines() if line.strip()]
        happened: list[str] = []
        if script[0] == ">> start":
            happened += [">> start", *self._take(self.machine.start())]
        for line in script[bool(happened) :]:
            if line.startswith(">> "):
                effects = self.machine.handle(self._event(line[3:]))
                happened += [line, *self._take(effects)]
        if happened != script:
            raise AssertionError("\n" + "\n".join(ndiff(script, happened)))

    def _take(self, effects: list[fx.Effect]) -> list[str]:
        for effect in effects:
            match effect:
                case fx.SendAdds():
                    for token, bookie, entries in effect.targets:
                        for entry in entries:
                            self._tokens[f"{bookie} add {entry}"].append(token)
                case fx.SendForce():
                    for token, bookie in effect.targets:
                        self._tokens[f"{bookie} force"].append(token)
                case fx.SendReadLac():
                    self._tokens[f"{effect.bookie} lac"].append(effect.token)
                case fx.SendPoll():
                    self._polled = effect.previous_lac + 1
                    self._tokens[f"{effect.bookie} poll"].append(effect.token)
                case fx.SendRead():
                    self._tokens[f"{effect.bookie} read {effect.entry_id}"].append(effect.token)
                case fx.ReadMetadata() | fx.WriteMetadata():
                    self._tokens["metadata"].append(effect.token)
                case fx.PickReplacements():
                    self._tokens["pick"].append(effect.token)
        return [f"<< {show(effect)}" for effect in effects]

    def _event(self, text: str) -> Any:
        word, _, rest = text.partition(" ")
        match word:
            case "append":
                return ev.Append(tuple(rest.encode().split(b",")))
            case "close":
                return ev.Close()
            case "force":
                return ev.Force()
            case "back":
                return ev.BookieRecovered(BookieId(rest))
            case "speculate":
                return ev.SpeculativeRead()
            case "picked":
                names = () if rest == "none" else tuple(map(BookieId, rest.split()))
                return ev.ReplacementsPicked(self._tokens["pick"].pop(0), names)
            case "written":
                return ev.MetadataWritten(self._tokens["metadata"].pop(0), int(rest))
            case "conflict":
                return ev.MetadataConflict(self._tokens["metadata"].pop(0))
            case "unavailable":
                error = MetadataUnavailableError("no answer from the store")
                return ev.MetadataFailed(self._tokens["metadata"].pop(0), error)
            case "metadata":
                version, _, metadata = rest.partition(" ")
                found = parse_metadata(metadata, self.machine.metadata)
                return ev.MetadataRead(self._tokens["metadata"].pop(0), found, int(version))
        kind, entry, *fields = rest.split(" ")
        if kind in ("force", "lac", "poll"):
            return self._other(self._tokens[f"{word} {kind}"].pop(0), kind, entry, fields)
        answer, *fields = fields
        if kind == "add":
            answer, _, connection = answer.partition("@")
            first, last = parse_range(entry)
            (token,) = {
                tokens.pop(0)
                for one in range(first, last + 1)
                if (tokens := self._tokens[f"{word} add {one}"])
            }
            return ev.AddsCompleted(token, first, last, parse_answer(answer), int(connection or 1))
        token = self._tokens[f"{word} {kind} {entry}"].pop(0)
        return ev.ReadCompleted(token, parse_answer(answer), self._entry(entry, fields))

    def _other(self, token: int, kind: str, first: str, fields: list[str]) -> Any:
        if kind == "force":
            answer, _, connection = first.partition("@")
            return ev.ForceCompleted(token, parse_answer(answer), int(connection or 1))
        if kind == "lac":
            lac = None if first == "none" else EntryId(int(first))
            return ev.LacCompleted(token, parse_answer(fields[0]), lac)
        lac = EntryId(int(fields[1])) if fields else None
        entry = None
        if len(fields) > 2:
            entry = self._entry(str(self._polled), fields)
        return ev.PollCompleted(token, parse_answer(first), lac, entry)

    def _entry(self, asked: str, fields: list[str]) -> VerifiedEntry | None:
        if not fields:
            return None
        values = dict(zip(fields[:-1:2], fields[1::2], strict=False))
        entry = int(values.get("id", asked))
        lac, length = int(values["lac"]), int(values["length"])
        ledger = getattr(self.machine, "metadata", None)
        ledger_id = ledger.ledger_id if ledger is not None else 7
        return VerifiedEntry(ledger_id, EntryId(entry), EntryId(lac), length, fields[-1].encode())


def play(machine: Any, text: str) -> None:
    """Run one playbook on a fresh machine."""
    Player(machine).play(text)
