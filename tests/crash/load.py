"""A seeded load against one bookie, and what it may answer.

The load keeps a window of requests under way on every connection: appends, overwrites of the same
entry with other bytes, recovery adds (also beyond the end and in fenced ledgers), ordinary and
fencing reads, reads of the last entry. What it asks is drawn from the seed; when the answers come
is up to the machine.

The judge, for each entry: versions count from 0 and say in their bytes which they are.

- A version that was acknowledged, or a later one that was sent and not refused, is what a read
  finds. 'No such entry' and 'no such ledger' are violations once a version was acknowledged.
- EIO is 'unknown': the request may or may not have been carried out. It is never a violation
  while the load runs; ``verify`` asks again until there is a real answer.
- An ordinary add that was sent after a fence had been answered is never acknowledged, a recovery
  add is never refused for a fence, and nobody is fenced out of a ledger that nobody fenced.

Every request is answered once. A key (operation, ledger, entry) is under way once at a time, and an
entry that was answered EIO is left alone on that connection: so an answer is never taken for that
to another request.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.harness import raw

ADD, READ = 1, 2
LAST = -1
WINDOW = 48
LEDGERS_PER_CONNECTION = 4
PROBE = 1 << 40
"""Entry ids from here on are only ever asked for to see whether a fence holds."""

_FILLER = random.Random(7).randbytes(1 << 18)
_WHICH = struct.Struct(">qqq")
_ANSWER = struct.Struct(">BBHiqq")


class Violation(AssertionError):  # noqa: N818 what it is called everywhere
    """The bookie broke a promise."""


class Denied(Violation):
    """It denied what it had acknowledged."""


class FenceLost(Violation):
    """It acknowledged an ordinary add to a ledger that it had fenced."""


class WrongBytes(Violation):
    """It served what was not written there, or what had been overwritten."""


class Unreadable(Violation):
    """It answered EIO for as long as it was asked."""


class WrongCrashClass(Violation):
    """Its disks take what ended them for something else."""


BROKEN = (Denied, FenceLost, WrongBytes, Unreadable, WrongCrashClass)
"""What a bookie that loses writes does; a Violation that is none of these may be a slow machine."""


@dataclass(slots=True)
class Entry:
    """Versions of one entry: the last acknowledged, the number sent, those surely not written."""

    acked: int | None = None
    sent: int = 0
    refused: set[int] = field(default_factory=set)

    def may_be(self, version: int, acked: int | None) -> bool:
        """Whether a read may find this version, ``acked`` having been acknowledged when it was
        sent.
        """
        late = acked is None or version >= acked
        return late and version < self.sent and version not in self.refused


@dataclass(slots=True, eq=False)
class Ledger:
    """One ledger as the load knows it. ``fenced``: a fence was answered. ``locked``: somebody else
    (phase one) may have fenced it. ``limbo``: entries may be missing.
    """

    id: int
    entries: dict[int, Entry] = field(default_factory=dict)
    end: int = 0
    highest: int = -1
    fence_sent: bool = False
    fenced: bool = False
    locked: bool = False
    limbo: bool = False

    @property
    def known(self) -> bool:
        """Whether the bookie ever confirmed anything about it."""
        return self.highest >= 0 or self.fenced


@dataclass(slots=True)
class Pending:
    """A request under way, and what was promised when it was sent."""

    ledger: Ledger
    entry: int
    version: int = -1
    recovery: bool = False
    fencing: bool = False
    acked: int | None = None
    highest: int = -1
    known: bool = False
    fenced: bool = False


def payload(ledger: int, entry: int, version: int) -> bytes:
    """The payload of a version: says which it is, sizes mixed from 24 bytes to 60 kB."""
    which = _WHICH.pack(ledger, entry, version)
    dice = zlib.crc32(which)
    scale = (40, 200, 200, 1_000, 1_000, 4_000, 60_000, 12_000)[dice & 7]
    size = (dice >> 3) % (scale if dice & 0x700 else 200)
    start = (dice >> 5) % (len(_FILLER) - size)
    return which + _FILLER[start : start + size]


class _Connection:
    def __init__(self, port: int, ledgers: list[Ledger]) -> None:
        self.port = port
        self.ledgers = ledgers
        self.sock: socket.socket | None = None
        self.out = bytearray()
        self.into = bytearray()
        self.pending: dict[tuple[int, int, int], Pending] = {}
        self.left_alone: set[tuple[int, int]] = set()

    def connect(self) -> bool:
        if self.sock is None:
            try:
                self.sock = socket.create_connection(("127.0.0.1", self.port), timeout=10)
            except OSError:
                return False
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock.setblocking(False)
        return True

    def drop(self) -> None:
        """The connection is gone, and with it every answer that has not come."""
        if self.sock is not None:
            self.sock.close()
        self.sock = None
        self.out.clear()
        self.into.clear()
        self.pending.clear()
        self.left_alone.clear()

    def send(self) -> None:
        assert self.sock is not None
        try:
            while self.out:
                del self.out[: self.sock.send(self.out)]
        except BlockingIOError:
            return
        except OSError:
            self.drop()

    def receive(self) -> list[bytes]:
        """The bodies of the whole frames that have come."""
        assert self.sock is not None
        try:
            data = self.sock.recv(1 << 20)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.drop()
            return []
        self.into += data
        bodies, at = [], 0
        while len(self.into) - at >= 4:
            (length,) = struct.unpack_from(">I", self.into, at)
            if len(self.into) - at - 4 < length:
                break
            bodies.append(bytes(self.into[at + 4 : at + 4 + length]))
            at += 4 + length
        del self.into[:at]
        return bodies

    def ask(self, opcode: int, pending: Pending, frame: bytes) -> bool:
        key = opcode, pending.ledger.id, pending.entry
        if key in self.pending or key[1:] in self.left_alone:
            return False
        pending.known, pending.fenced = pending.ledger.known, pending.ledger.fenced
        pending.highest = pending.ledger.highest
        self.pending[key] = pending
        self.out += frame
        return True


class Load:
    """The load, its memory and its judge. ``port`` is where the bookie is found, for good."""

    def __init__(
        self, port: int, seed: int, *, connections: int = 3, first_ledger: int = 1, flags: int = 0
    ) -> None:
        self.port = port
        self.acks = self.reads = self.negatives = self.unknowns = 0
        self.fences = 0
        self.ledgers: dict[int, Ledger] = {}
        self._rng = random.Random(seed)
        self._next_ledger = first_ledger
        self._flags = flags
        self._fresh: set[tuple[int, int]] = set()
        self._seen: list[tuple[int, int]] = []
        self._connections = [_Connection(port, []) for _ in range(connections)]
        self.turn_over()

    def told(self) -> str:
        """What was answered, in a line."""
        return (
            f"{self.acks} acks, {self.fences} fences, {self.reads} reads, "
            f"{self.unknowns} answers unknown"
        )

    def close(self) -> None:
        for connection in self._connections:
            connection.drop()

    # ---- ledgers -----------------------------------------------------------------------------

    def turn_over(self) -> list[Ledger]:
        """Go on with new ledgers only; returns them."""
        new = []
        for connection in self._connections:
            connection.ledgers = [self._new_ledger() for _ in range(LEDGERS_PER_CONNECTION)]
            new += connection.ledgers
        return new

    def _new_ledger(self) -> Ledger:
        ledger = Ledger(self._next_ledger)
        self._next_ledger += 1
        self.ledgers[ledger.id] = ledger
        return ledger

    def drop_ledgers(self, ledgers: Iterable[int]) -> None:
        """Speak no more of these, which nothing is sent to any more."""
        for ledger in ledgers:
            del self.ledgers[ledger]
        self._seen = [item for item in self._seen if item[0] in self.ledgers]
        self._fresh = {item for item in self._fresh if item[0] in self.ledgers}

    # ---- running -----------------------------------------------------------------------------

    def run(self, acks: int, seconds: float = 60.0) -> None:
        """Until that many more adds were acknowledged."""
        wanted, deadline = self.acks + acks, time.monotonic() + seconds
        while self.acks < wanted:
            self.pump(0.05)
            if time.monotonic() > deadline:
                raise Violation(f"only {self.acks} of {wanted} adds acknowledged in {seconds} s")

    def run_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.pump(min(left, 0.01))

    def drain(self, seconds: float = 30.0) -> None:
        """Ask nothing more, and wait for the answers that are due."""
        deadline = time.monotonic() + seconds
        while any(connection.pending for connection in self._connections):
            self.pump(0.05, asking=False)
            if time.monotonic() > deadline:
                raise Violation(f"answers are still due after {seconds} s")

    def pump(self, timeout: float, *, asking: bool = True) -> None:
        """Keep the windows full and take what has come, once."""
        live = []
        for connection in self._connections:
            if not connection.connect():
                continue
            while asking and len(connection.pending) < WINDOW and len(connection.out) < 1 << 18:
                self._ask(connection)
            if connection.out:
                connection.send()
            if connection.sock is not None:
                live.append(connection)
        if not live:
            time.sleep(min(timeout, 0.005))
            return
        poll = select.poll()
        by_fd = {}
        for connection in live:
            assert connection.sock is not None
            by_fd[connection.sock.fileno()] = connection
            poll.register(
                connection.sock, select.POLLIN | (select.POLLOUT if connection.out else 0)
            )
        for fd, events in poll.poll(timeout * 1000):
            connection = by_fd[fd]
            if events & select.POLLOUT:
                connection.send()
            if events & ~select.POLLOUT and connection.sock is not None:
                for body in connection.receive():
                    self._take(connection, body)

    # ---- asking ------------------------------------------------------------------------------

    def _ask(self, connection: _Connection) -> None:
        rng = self._rng
        ledger = rng.choice(connection.ledgers)
        dice = rng.random()
        if dice < 0.62:
            self._add(connection, ledger, ledger.end, recovery=False)
        elif dice < 0.72:
            number = ledger.end - 1 - rng.randrange(64)
            if number in ledger.entries:
                self._add(connection, ledger, number, recovery=ledger.fenced or rng.random() < 0.5)
        elif dice < 0.76:
            self._add(connection, ledger, ledger.end + rng.randrange(3), recovery=True)
        elif dice < 0.94:
            self._read(connection, ledger, rng.randrange(ledger.end + 2))
        elif dice < 0.97:
            self._read(connection, ledger, LAST)
        elif dice < 0.985:
            if ledger.fenced and rng.random() < 0.5:
                connection.ledgers.remove(ledger)
                connection.ledgers.append(self._new_ledger())
        elif ledger.end > 20 and rng.random() < 0.5:
            self._read(connection, ledger, rng.choice((LAST, ledger.end)), fencing=True)

    def _add(self, connection: _Connection, ledger: Ledger, number: int, *, recovery: bool) -> None:
        entry = ledger.entries.get(number) or Entry()
        pending = Pending(ledger, number, version=entry.sent, recovery=recovery)
        flags = self._flags | (raw.RECOVERY if recovery else 0)
        frame = raw.add_frame(ledger.id, number, payload(ledger.id, number, entry.sent), flags)
        if connection.ask(ADD, pending, frame):
            ledger.entries[number] = entry
            ledger.end = max(ledger.end, number + 1)
            entry.sent += 1

    def _read(
        self, connection: _Connection, ledger: Ledger, number: int, *, fencing: bool = False
    ) -> None:
        entry = ledger.entries.get(number)
        pending = Pending(ledger, number, fencing=fencing, acked=entry.acked if entry else None)
        frame = raw.read_frame(ledger.id, number, raw.FENCE if fencing else 0)
        if connection.ask(READ, pending, frame):
            ledger.fence_sent |= fencing

    # ---- judging -----------------------------------------------------------------------------

    def _take(self, connection: _Connection, body: bytes) -> None:
        _version, opcode, _flags, code, ledger, entry = _ANSWER.unpack_from(body)
        pending = connection.pending.pop((opcode, ledger, entry), None)
        if pending is None:
            raise Violation(f"an answer to nothing: {opcode=} {code=} {ledger=} {entry=}")
        if code == raw.EIO:
            connection.left_alone.add((ledger, entry))
        self.judge(opcode, pending, code, body[24:])

    def judge(self, opcode: int, pending: Pending, code: int, data: bytes) -> None:
        """Take in the answer to a request. Raises Violation."""
        if code == raw.EIO:
            self.unknowns += 1
        elif opcode == ADD:
            self._judge_add(pending, code)
        else:
            self._judge_read(pending, code, data)

    def _judge_add(self, pending: Pending, code: int) -> None:
        ledger, number = pending.ledger, pending.entry
        what = f"add of ledger {ledger.id} entry {number} version {pending.version}"
        if code == raw.EOK:
            if pending.fenced and not pending.recovery:
                raise FenceLost(f"{what} was acknowledged after the ledger had been fenced")
            self.acks += 1
            ledger.highest = max(ledger.highest, number)
            if number < PROBE:
                ledger.entries[number].acked = pending.version
                self._fresh.add((ledger.id, number))
            return
        if code == raw.EFENCED:
            if pending.recovery:
                raise Violation(f"recovery {what} was refused: fenced")
            if not ledger.fence_sent and not ledger.locked:
                raise Violation(f"{what} was refused: fenced, by nobody")
            if number < PROBE:
                ledger.entries[number].refused.add(pending.version)
            return
        raise Violation(f"{what} was answered {code}")

    def _judge_read(self, pending: Pending, code: int, data: bytes) -> None:
        ledger, number = pending.ledger, pending.entry
        what = f"{'fencing ' * pending.fencing}read of ledger {ledger.id} entry {number}"
        self.reads += 1
        if code not in (raw.EOK, raw.ENOENTRY, raw.ENOLEDGER):
            raise Violation(f"{what} was answered {code}")
        if pending.fencing:
            if code == raw.ENOLEDGER:
                raise Denied(f"{what}: no such ledger")
            self.fences += not ledger.fenced
            ledger.fenced = True
        if code == raw.EOK:
            found = self._judge_bytes(what, ledger, number, data, pending.acked)
            if found < pending.highest and number == LAST and not ledger.limbo:
                raise Denied(f"{what} found {found}, {pending.highest} had been acknowledged")
            return
        self.negatives += 1
        if pending.acked is not None or (number == LAST and pending.highest >= 0):
            raise Denied(
                f"{what} was denied ({code}); acknowledged had been version {pending.acked}, "
                f"entries up to {pending.highest}"
            )
        if code == raw.ENOLEDGER and pending.known:
            raise Denied(f"{what}: no such ledger, which is known")

    def _judge_bytes(
        self, what: str, ledger: Ledger, number: int, data: bytes, acked: int | None
    ) -> int:
        """The entry id that was found."""
        if len(data) < 40 + _WHICH.size:
            raise WrongBytes(f"{what} found {len(data)} bytes, which nothing of its load is")
        owner, found, version = _WHICH.unpack_from(data, 40)
        entry = ledger.entries.get(found)
        if owner != ledger.id or (number != LAST and found != number) or entry is None:
            raise WrongBytes(f"{what} found {owner}/{found}/{version}")
        if number == LAST or ledger.limbo:
            acked = None  # a limbo ledger may be back at an older version: it serves what it has
        if not entry.may_be(version, acked):
            raise WrongBytes(f"{what} found version {version}; acknowledged was {acked}, {entry}")
        if data != raw.make_entry(owner, found, payload(owner, found, version)):
            raise WrongBytes(f"{what}: wrong bytes in version {version}")
        return found

    # ---- looking at what is there ------------------------------------------------------------

    def verify(
        self, *, sample: int | None = None, unknown_ok: bool = False, patience_s: float = 30.0
    ) -> int:
        """Read what was acknowledged and try every fence: all of it, or what is new and a sample.

        An EIO is asked again until ``verify`` gives up, unless ``unknown_ok`` or the ledger is in
        limbo. Returns how many of the answers were unknown.
        """
        if sample is None:
            entries = {
                (ledger.id, number)
                for ledger in self.ledgers.values()
                for number, entry in ledger.entries.items()
                if entry.acked is not None
            }
            ledgers = list(self.ledgers.values())
        else:
            known = self._seen or [*self._fresh]
            entries = self._fresh | set(self._rng.choices(known, k=sample) if known else ())
            ledgers = [ledger for item in self._connections for ledger in item.ledgers]
            ledgers += self._rng.choices(list(self.ledgers.values()), k=8)
        self._seen += sorted(self._fresh)
        self._fresh.clear()
        ledgers.sort(key=lambda ledger: ledger.id)
        wanted = [(READ, *item) for item in sorted(entries)]
        wanted += [(ADD, ledger.id, PROBE) for ledger in ledgers if ledger.fenced]
        wanted += [(READ, ledger.id, LAST) for ledger in ledgers if ledger.known]
        deadline = time.monotonic() + patience_s
        while True:
            unknown = self._ask_all(wanted)
            real = [item for item in unknown if not self.ledgers[item[1]].limbo]
            if unknown_ok or not real:
                return len(unknown)
            if time.monotonic() > deadline:
                raise Unreadable(f"no answer but EIO to {len(unknown)} reads, as {unknown[:5]}")
            wanted = unknown
            time.sleep(0.05)

    def _ask_all(self, wanted: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """Ask once; what had no answer but EIO, or none because the connection was lost."""
        connection = _Connection(self.port, [])
        unknown: list[tuple[int, int, int]] = []
        todo = list(reversed(wanted))
        try:
            if not connection.connect():
                return wanted
            assert connection.sock is not None
            connection.sock.settimeout(20)
            while todo or connection.pending:
                while todo and len(connection.pending) < 64:
                    opcode, number, entry = todo.pop()
                    self._ask_one(connection, opcode, self.ledgers[number], entry)
                due = list(connection.pending)
                connection.send()
                bodies = connection.receive() if connection.sock is not None else []
                if connection.sock is None:
                    return unknown + due + todo
                for body in bodies:
                    _version, opcode, _flags, code, ledger, entry = _ANSWER.unpack_from(body)
                    pending = connection.pending.pop((opcode, ledger, entry), None)
                    if pending is None:
                        raise Violation(
                            f"an answer to nothing: {opcode=} {code=} {ledger=} {entry=}"
                        )
                    if code == raw.EIO:
                        unknown.append((opcode, ledger, entry))
                    else:
                        self.judge(opcode, pending, code, body[24:])
        finally:
            connection.drop()
        return unknown

    def _ask_one(self, connection: _Connection, opcode: int, ledger: Ledger, number: int) -> None:
        if opcode == ADD:
            frame = raw.add_frame(ledger.id, number, b"probe", self._flags)
            connection.ask(ADD, Pending(ledger, number), frame)
        else:
            self._read(connection, ledger, number)
