"""A bookie whose disks are on block devices, and what it acknowledged to a client that shares no code with it."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.bookie import SETTINGS, CrashBookie
from tests.harness import raw
from tests.harness.cluster import NOBODY, create_ledgers, ledger_of
from tests.harness.processes import bkbox
from tests.interop.javaparts import JavaBookie

WINDOW = 50
_IDS = struct.Struct(">qq")


class HostedBookie(CrashBookie):
    """Ends with the test. ``scratch``: a folder that no device can take away, with the configuration."""

    def __init__(self, scratch: Path, metadata: str = "", *, name: str = "bookie") -> None:
        super().__init__(scratch, metadata=metadata, name=name)
        self._boot_id: Path | None = None

    def init_on(
        self, ack_after: str, disks: Sequence[Path], journal: Path | None = None, **settings: object
    ) -> HostedBookie:
        """On these disks, in this order; the journal is beside the first one unless it is given."""
        self.disks = list(disks)
        arguments = ["init", "--config", str(self.config), "--metadata", self.metadata]
        arguments += ["--listen", f"127.0.0.1:{self.port}"]
        for disk in disks:
            arguments += ["--disk", str(disk)]
        if ack_after == "journal":
            arguments += ["--journal", str(journal or disks[0].parent / "journal")]
        for key, value in {"ack_after": ack_after, **SETTINGS, **settings}.items():
            arguments += ["--set", f"{key}={value}"]
        bkbox(*arguments)
        return self

    def lose_host(self) -> None:
        """Kill it. Its next starts see another boot id."""
        if self.process is not None:
            self.kill()
        self._boot_id = self._boot_id or self.root / "boot_id"
        self._boot_id.write_text(f"{uuid.uuid4()}\n")

    def command(self) -> list[str]:
        """Where the host was lost, in a mount namespace in which the kernel's boot id is another."""
        command = ["setpriv", "--pdeathsig", "KILL", *super().command()]
        if self._boot_id is None:
            return command
        another = 'mount -n --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
        shell = ["sh", "-c", another, str(self._boot_id)]
        return ["unshare", "--mount", "--propagation", "slave", *shell, *command]

    @property
    def limbo(self) -> int:
        """Number of its ledgers in limbo."""
        return int(self.status()["limbo"]["ledgers"])

    def name_ledgers(self, ledgers: Iterable[int], *others: str) -> None:
        """Create them in the metadata store: on this bookie and two others, by default ones that do not answer."""
        ensemble = [self.bookie_id, *(others or (NOBODY, "127.0.0.1:2"))]
        create_ledgers(self.metadata, [ledger_of(each, ensemble) for each in ledgers])


@dataclass
class Findings:
    """What a bookie answers for what it acknowledged: numbers of entries, and ledgers whose fence is gone."""

    served: int = 0
    unknown: int = 0
    denied: list[tuple[int, int]] = field(default_factory=list)
    unfenced: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.denied or self.unfenced)


class Promises:
    """What a bookie acknowledged. Entries are sent once, with a payload that says which they are."""

    def __init__(self, bookie: CrashBookie | JavaBookie) -> None:
        self._port = bookie.port
        self.entries: dict[int, set[int]] = {}
        self.fenced: set[int] = set()

    @property
    def count(self) -> int:
        return sum(map(len, self.entries.values()))

    def add(self, ledger: int, entries: Iterable[int], flags: int = 0) -> int:
        """Number of those that were acknowledged."""
        kept, numbers, before = self.entries.setdefault(ledger, set()), list(entries), self.count
        with raw.RawClient(self._port) as client:
            for start in range(0, len(numbers), WINDOW):
                window = numbers[start : start + WINDOW]
                client.send(
                    b"".join(
                        raw.add_frame(ledger, each, payload(ledger, each), flags) for each in window
                    )
                )
                for answer in (client.answer() for _ in window):
                    if answer.code == raw.EOK:
                        kept.add(answer.entry)
        return self.count - before

    def fence(self, ledger: int) -> None:
        with raw.RawClient(self._port) as client:
            code = client.fence(ledger).code
        assert code in (raw.EOK, raw.ENOENTRY), code
        self.fenced.add(ledger)

    def look(self) -> Findings:
        """Read all entries, the last of each ledger, and try every fence."""
        found = Findings()
        with raw.RawClient(self._port) as client:
            for ledger, entries in self.entries.items():
                before = found.unknown
                for entry in sorted(entries):
                    self._look_at(found, ledger, entry, client.read(ledger, entry))
                last = client.read(ledger, -1)
                if not entries or last.code == raw.EIO:
                    continue
                # In limbo it says what it has: whoever recovers looks for more from there.
                least = max(entries) if found.unknown == before else -1
                if last.code != raw.EOK or _IDS.unpack_from(last.body)[1] < least:
                    found.denied.append((ledger, -1))
            for ledger in self.fenced:
                if client.add(ledger, 1 << 40, b"of a writer that was fenced") == raw.EOK:
                    found.unfenced.append(ledger)
        return found

    def kept(self, *, unknown_ok: bool = True) -> Findings:
        """Nothing is denied, and each fence is there; nor is anything unknown unless that is allowed."""
        found = self.look()
        assert not found, found
        assert unknown_ok or not found.unknown, found
        return found

    @staticmethod
    def _look_at(found: Findings, ledger: int, entry: int, answer: raw.Answer) -> None:
        if answer.code == raw.EIO:
            found.unknown += 1
        elif answer.code != raw.EOK:
            found.denied.append((ledger, entry))
        else:
            assert raw.payload_of(answer.body) == payload(ledger, entry), (ledger, entry)
            found.served += 1


def payload(ledger: int, entry: int) -> bytes:
    """Some hundred bytes that say which entry they are."""
    return f"entry {entry} of ledger {ledger} ".encode() * 20
