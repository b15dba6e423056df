"""What Apache's client and bkbox's show of the same doings: a table of small scenarios.

A scenario does something through a client and notes what it sees: entries, LACs, states, kinds of errors. It is run
with each client against one cluster; what they note has to be equal. What a scenario should give is written nowhere:
Apache's client says it. Ids of ledgers and names of bookies differ from run to run and are not noted.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from tests.harness.waiting import wait_for
from tests.interop.clients import DIGESTS, Client, Metadata, Refused, Writer, pattern

Notes = list[tuple[str, Any]]


class Look:
    """Notes what is seen."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.notes: Notes = []

    def at(self, what: str, call: Callable[[], Any]) -> Any:
        """The outcome of a call: its value, or the kind of its error."""
        try:
            found = call()
        except Refused as refusal:
            self.notes.append((what, f"refused: {refusal.kind}"))
            return None
        self.notes.append((what, _shown(found)))
        return found

    def refused(self, what: str, call: Callable[[], Any]) -> None:
        """Only whether a call fails, where the two name the same thing differently (docs/client.md says where)."""
        try:
            call()
        except Refused:
            self.notes.append((what, "refused"))
        else:
            self.notes.append((what, "done"))


def _shown(found: Any) -> Any:
    match found:
        case Metadata():
            custom = tuple(sorted(found.custom.items()))
            sizes = (found.e, found.wq, found.aq)
            return (
                found.state,
                found.last,
                found.length,
                sizes,
                found.digest,
                found.password,
                custom,
            )
        case [(int(), bytes()), *_]:
            return tuple(
                (entry, len(payload), hashlib.sha256(payload).hexdigest()[:8])
                for entry, payload in found
            )
        case list():
            return tuple(found)
        case tuple() | int() | str() | bytes() | None:
            return found
    return type(found).__name__


Scenario = Callable[[Client, Look], None]
SCENARIOS: dict[str, tuple[str, Scenario]] = {}
"""By what they are about: protocol and function."""


def row(name: str, protocol: str = "v3") -> Callable[[Scenario], Scenario]:
    def add(scenario: Scenario) -> Scenario:
        assert name not in SCENARIOS
        SCENARIOS[name] = protocol, scenario
        return scenario

    return add


def rows(names: dict[str, Scenario], protocol: str = "v3") -> None:
    for name, scenario in names.items():
        row(name, protocol)(scenario)


def written(client: Client, count: int = 10, size: int = 50, **kind: Any) -> Writer:
    """An open ledger with so many entries, sent together: what they say is confirmed is a matter of time."""
    writer = client.create(**kind)
    if count:
        writer.append_async(count, size)
    return writer


def confirmed(client: Client, count: int = 10, size: int = 50, **kind: Any) -> Writer:
    """The same, but each entry is sent when the one before is acknowledged: readers see all but the last confirmed."""
    writer = client.create(**kind)
    for number in range(count):
        writer.append(pattern(number, size))
    return writer


def closed(client: Client, count: int = 10, size: int = 50, **kind: Any) -> Writer:
    writer = written(client, count, size, **kind)
    writer.close()
    return writer


# ---- written, ended, read -----------------------------------------------------------------------------


def _ended(client: Client, look: Look, *, digest: str, how: str) -> None:
    key = {"digest": digest, "password": b"pw"}
    writer = (confirmed if how == "open" else written)(client, 12, 100, **key)
    if how == "closed":
        look.at("close", writer.close)
    reader = client.open(writer.ledger, **key, recovery=how == "recovered")
    look.at("lac", reader.read_lac)
    look.at("entries", lambda: reader.read(0, 10))
    look.at("the last entry", lambda: reader.read(11, 11))
    look.at("metadata", lambda: client.metadata(writer.ledger))


for _digest in DIGESTS:
    for _how in ("closed", "recovered", "open"):
        row(f"written with {_digest}, {_how}, read")(partial(_ended, digest=_digest, how=_how))


def _sizes(client: Client, look: Look, *, sizes: tuple[int, int, int]) -> None:
    e, wq, aq = sizes
    writer = closed(client, 7, e=e, wq=wq, aq=aq)
    look.at("metadata", lambda: client.metadata(writer.ledger))
    look.at("entries", lambda: client.open(writer.ledger).read(0, 6))


for _quorums in (
    (1, 1, 1),
    (2, 1, 1),
    (2, 2, 1),
    (2, 2, 2),
    (3, 2, 2),
    (3, 3, 1),
    (3, 3, 2),
    (3, 3, 3),
):
    _text = "/".join(map(str, _quorums))
    row(f"E/WQ/AQ {_text}")(partial(_sizes, sizes=_quorums))


def _payload(client: Client, look: Look, *, size: int) -> None:
    writer = client.create()
    look.at("append", lambda: writer.append(pattern(1, size)))
    look.at("append", lambda: writer.append(b"after"))
    look.at("close", writer.close)
    look.at("entries", lambda: client.open(writer.ledger).read(0, 1))
    look.at("metadata", lambda: client.metadata(writer.ledger))


for _size in (0, 1, 1023, 65_536, 1 << 20, 5_000_000):
    row(f"an entry of {_size} bytes")(partial(_payload, size=_size))


# ---- reads --------------------------------------------------------------------------------------------


def _read(client: Client, look: Look, *, first: int, last: int) -> None:
    writer = closed(client)
    reader = client.open(writer.ledger, recovery=False)
    look.at("entries", lambda: reader.read(first, last))
    look.at("lac", reader.lac)


for _first, _last in ((0, 9), (0, 0), (9, 9), (3, 5), (9, 10), (10, 10), (8, 100)):
    row(f"entries {_first} to {_last} of a closed ledger of 10")(
        partial(_read, first=_first, last=_last)
    )


def _read_open(client: Client, look: Look, *, first: int, last: int) -> None:
    writer = confirmed(client)
    reader = client.open(writer.ledger, recovery=False)
    look.at("lac", reader.read_lac)
    look.at("entries", lambda: reader.read(first, last))
    look.at("lac", reader.lac)


for _first, _last in ((0, 8), (0, 9), (8, 8), (10, 10)):
    row(f"entries {_first} to {_last} of an open ledger of 10")(
        partial(_read_open, first=_first, last=_last)
    )


def _unconfirmed(client: Client, look: Look, *, first: int, last: int) -> None:
    reader = client.open(written(client).ledger, recovery=False)
    look.at("entries", lambda: reader.read_unconfirmed(first, last))


for _first, _last in ((0, 9), (9, 9), (5, 8)):
    row(f"unconfirmed entries {_first} to {_last} of an open ledger of 10")(
        partial(_unconfirmed, first=_first, last=_last)
    )


def _batch(client: Client, look: Look, *, first: int, count: int) -> None:
    reader = client.open(closed(client, 10, 100, aq=3).ledger)  # so that each bookie has all of it
    look.at("entries", lambda: reader.batch_read(first, count, 1 << 20))


for _first, _count in ((0, 1), (0, 10), (0, 100), (4, 3), (9, 5)):
    row(f"a batch of {_count} from entry {_first} of 10", "v2")(
        partial(_batch, first=_first, count=_count)
    )


def _lac(client: Client, look: Look, *, count: int) -> None:
    writer = client.create()
    for number in range(count):
        look.at("append", lambda number=number: writer.append(pattern(number, 30)))
    look.at("the writer's lac", writer.lac)
    reader = client.open(writer.ledger, recovery=False)
    look.at("lac", reader.read_lac)
    look.at("lac without a quorum", reader.try_read_lac)
    look.at("explicit lac", reader.explicit_lac)


for _entries in (0, 1, 2, 5):
    row(f"LACs of an open ledger of {_entries}")(partial(_lac, count=_entries))


@row("a closed ledger's LACs")
def _closed_lacs(client: Client, look: Look) -> None:
    reader = client.open(closed(client, 3).ledger, recovery=False)
    for what in (reader.lac, reader.read_lac, reader.try_read_lac, reader.explicit_lac):
        look.at("lac", what)


@row("an explicit LAC makes the last entry readable")
def _explicit(client: Client, look: Look) -> None:
    with client.another(explicit_lac_ms=20) as telling:
        writer = written(telling, 3)
        reader = client.open(writer.ledger, recovery=False)
        wait_for(lambda: reader.explicit_lac() == 2, "the writer to tell its LAC")
        look.at("entries", lambda: reader.read(0, 2))
        look.at("one more", lambda: reader.read(3, 3))
        writer.close()


# ---- long polls ---------------------------------------------------------------------------------------


@row("a long poll for an entry that is confirmed")
def _poll_there(client: Client, look: Look) -> None:
    reader = client.open(confirmed(client, 3).ledger, recovery=False)
    look.at("lac", reader.read_lac)
    look.at("poll", lambda: reader.long_poll(1, 20_000, parallel=False))


@row("a long poll for an entry that is confirmed meanwhile")
def _poll_meanwhile(client: Client, look: Look) -> None:
    writer = confirmed(client, 3)
    reader = client.open(writer.ledger, recovery=False)
    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(reader.long_poll, 2, 20_000, parallel=False)
        time.sleep(0.3)  # so that it waits; it is answered the same if it comes late
        writer.append(b"3")
        look.at("poll", lambda: polled.result(60))


@row("a long poll that runs out")
def _poll_out(client: Client, look: Look) -> None:
    reader = client.open(confirmed(client, 3).ledger, recovery=False)
    look.at("lac", reader.read_lac)
    look.at("poll", lambda: reader.long_poll(2, 200, parallel=False))


@row("a long poll of a closed ledger")
def _poll_closed(client: Client, look: Look) -> None:
    reader = client.open(closed(client, 3).ledger, recovery=False)
    look.at("poll", lambda: reader.long_poll(2, 200, parallel=False))


# ---- writers ------------------------------------------------------------------------------------------


@row("append after closing")
def _after_close(client: Client, look: Look) -> None:
    writer = closed(client, 2)
    look.at("append", lambda: writer.append(b"late"))
    look.at("metadata", lambda: client.metadata(writer.ledger))


@row("closing twice")
def _twice(client: Client, look: Look) -> None:
    writer = closed(client, 2)
    look.at("close", writer.close)
    look.at("lac", writer.lac)


@row("append after a recovery")
def _fenced(client: Client, look: Look) -> None:
    writer = written(client, 5)
    look.at("recovery", lambda: client.recover(writer.ledger, 1))
    look.at("append", lambda: writer.append(b"late"))
    look.at("metadata", lambda: client.metadata(writer.ledger))


@row("append twice after a recovery")
def _fenced_twice(client: Client, look: Look) -> None:
    writer = written(client, 5)
    client.recover(writer.ledger, 1)
    look.at("append", lambda: writer.append(b"late"))
    look.refused("append", lambda: writer.append(b"later still"))
    look.at("metadata", lambda: client.metadata(writer.ledger))
    look.at("entries", lambda: client.open(writer.ledger).read(0, 4))


@row("closing after a recovery that came to the same end")
def _close_fenced(client: Client, look: Look) -> None:
    writer = written(client, 5)
    client.recover(writer.ledger, 1)
    look.at("close", writer.close)
    look.at("metadata", lambda: client.metadata(writer.ledger))


@row("a reader without recovery does not disturb the writer")
def _undisturbed(client: Client, look: Look) -> None:
    writer = confirmed(client, 5)
    reader = client.open(writer.ledger, recovery=False)
    look.at("lac", reader.read_lac)
    look.at("append", lambda: writer.append(b"on"))
    look.at("close", writer.close)
    look.at("metadata", lambda: client.metadata(writer.ledger))


@row("a handle that was opened before the ledger was closed")
def _old_handle(client: Client, look: Look) -> None:
    writer = written(client, 5)
    reader = client.open(writer.ledger, recovery=False)
    writer.append(b"5")
    writer.close()
    wait_for(
        lambda: reader.read_lac() == 5,
        "the handle to hear of the end, which Java's does by a watch",
    )
    look.at("entries", lambda: reader.read(0, 5))


@row("an empty ledger, closed")
def _empty_closed(client: Client, look: Look) -> None:
    writer = closed(client, 0)
    look.at("lac", client.open(writer.ledger).lac)
    look.at("entries", lambda: client.open(writer.ledger).read(0, 0))
    look.at("metadata", lambda: client.metadata(writer.ledger))


@row("an empty ledger, recovered")
def _empty_recovered(client: Client, look: Look) -> None:
    writer = client.create()
    look.at("recovery", lambda: client.recover(writer.ledger, 1))
    look.at("metadata", lambda: client.metadata(writer.ledger))


@row("a closed ledger is recovered")
def _recover_closed(client: Client, look: Look) -> None:
    writer = closed(client, 4)
    look.at("recovery", lambda: client.recover(writer.ledger, 1))
    look.at("metadata", lambda: client.metadata(writer.ledger))


@row("four recoveries at once")
def _recoveries(client: Client, look: Look) -> None:
    writer = written(client, 30)
    ends = {end for end in client.recover(writer.ledger, 4) if isinstance(end, int)}
    look.at("ends", lambda: sorted(ends))
    look.at("metadata", lambda: client.metadata(writer.ledger))


@row("many writers of one client at once")
def _many_writers(client: Client, look: Look) -> None:
    with ThreadPoolExecutor(4) as pool:
        writers = list(pool.map(lambda _: closed(client, 20), range(8)))
    for writer in writers:
        look.at("metadata", lambda writer=writer: client.metadata(writer.ledger))
        look.at("entries", lambda writer=writer: client.open(writer.ledger).read(0, 19))


# ---- what may not be ----------------------------------------------------------------------------------


def _unknown(client: Client, look: Look, *, what: str) -> None:
    ledger = closed(client, 1).ledger
    client.delete(ledger)
    calls: dict[str, Callable[[], Any]] = {
        "open with recovery": lambda: client.open(ledger),
        "open": lambda: client.open(ledger, recovery=False),
        "metadata": lambda: client.metadata(ledger),
        "list": lambda: ledger in client.ledgers(),
    }
    look.at(what, calls[what])


for _what in ("open with recovery", "open", "metadata", "list"):
    row(f"a deleted ledger: {_what}")(partial(_unknown, what=_what))


def _wrong_key(client: Client, look: Look, *, recovery: bool, key: dict[str, Any]) -> None:
    writer = written(client, 3, password=b"right")
    look.at("open", lambda: client.open(writer.ledger, recovery=recovery, **key))
    look.at("append", lambda: writer.append(b"on"))
    look.at("metadata", lambda: client.metadata(writer.ledger))


for _recovery in (True, False):
    for _password in (b"", b"wrong", b"right?"):
        _with = "with" if _recovery else "without"
        row(f"opened with password {_password!r}, {_with} recovery")(
            partial(_wrong_key, recovery=_recovery, key={"password": _password})
        )


def _too_many(client: Client, look: Look, *, e: int) -> None:
    look.at("create", lambda: client.create(e, e, e))


row("an ensemble of ten where there are three bookies")(partial(_too_many, e=10))


# ---- metadata, sync ---------------------------------------------------------------------------------


def _custom(client: Client, look: Look, *, custom: dict[str, bytes]) -> None:
    writer = client.create(custom=custom)
    look.at("metadata", lambda: client.metadata(writer.ledger))
    writer.close()
    look.at("metadata", lambda: client.metadata(writer.ledger))


rows(
    {
        "custom metadata: none": partial(_custom, custom={}),
        "custom metadata: text": partial(_custom, custom={"application": b"x", "b": b"y"}),
        "custom metadata: an empty value": partial(_custom, custom={"empty": b""}),
        "custom metadata: bytes and a name that is not ASCII": partial(
            _custom, custom={"ü": bytes(range(256))}
        ),
    }
)


@row("deferred sync: LACs before and after a force")
def _deferred(client: Client, look: Look) -> None:
    writer = client.create(deferred_sync=True)
    for number in range(3):
        look.at("append", lambda number=number: writer.append(pattern(number, 30)))
    look.at("lac", writer.lac)
    look.at("force", writer.force)
    look.at("lac", writer.lac)
    look.at("close", writer.close)
    look.at("metadata", lambda: client.metadata(writer.ledger))


@row("deferred sync: recovered")
def _deferred_recovered(client: Client, look: Look) -> None:
    writer = client.create(deferred_sync=True)
    writer.append_async(5, 50)
    writer.force()
    look.at("recovery", lambda: client.recover(writer.ledger, 1))
    look.at("append", lambda: writer.append(b"late"))
    look.at("entries", lambda: client.open(writer.ledger).read(0, 4))


@row("a force without deferred sync")
def _force(client: Client, look: Look) -> None:
    writer = written(client, 3)
    look.at("force", writer.force)
    look.at("lac", writer.lac)


# ---- ids of the caller's own --------------------------------------------------------------------------


def _own_ids(client: Client, look: Look, *, order: tuple[int, ...]) -> None:
    writer = client.create(adv=True)
    with ThreadPoolExecutor(len(order)) as pool:
        writes = []
        for entry in order:
            writes.append(pool.submit(writer.write, entry, pattern(entry, 30 + entry)))
            time.sleep(0.02)  # so that they arrive in this order
        for write in writes:
            look.at("write", lambda write=write: write.result(60))
    look.at("lac", writer.lac)
    look.at("close", writer.close)
    look.at("last", lambda: client.metadata(writer.ledger).last)
    look.at("entries", lambda: client.open(writer.ledger).read(0, len(order) - 1))


for _order in ((0, 1, 2), (2, 1, 0), (1, 3, 0, 2)):
    row(f"entries with ids of one's own, appended as {', '.join(map(str, _order))}")(
        partial(_own_ids, order=_order)
    )


@row("an entry with an id that was appended before")
def _entry_twice(client: Client, look: Look) -> None:
    writer = client.create(adv=True)
    look.at("write", lambda: writer.write(0, b"0"))
    look.at("again", lambda: writer.write(0, b"other"))
    look.at("write", lambda: writer.write(1, b"1"))
    look.at("close", writer.close)
    look.at("entries", lambda: client.open(writer.ledger).read(0, 1))


@row("closed while an entry waits for the one before it")
def _closed_with_a_gap(client: Client, look: Look) -> None:
    writer = client.create(adv=True)
    look.at("write", lambda: writer.write(0, b"0"))
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(writer.write, 2, b"2")
        time.sleep(0.2)
        look.at("close", writer.close)
        look.at("early", lambda: early.result(60))
    look.at("metadata", lambda: client.metadata(writer.ledger))


@row("recovered while an entry waits for the one before it")
def _recovered_with_a_gap(client: Client, look: Look) -> None:
    writer = client.create(adv=True)
    look.at("write", lambda: writer.write(0, b"0"))
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(writer.write, 2, b"2")
        time.sleep(1.0)  # one that comes after the recovery would find the ledger fenced by itself
        look.at("recovery", lambda: client.recover(writer.ledger, 1))
        look.at("write", lambda: writer.write(1, b"1"))
        look.at("early", lambda: early.result(60))
    look.at("last", lambda: client.metadata(writer.ledger).last)


@row("a ledger with an id of one's own")
def _own_ledger(client: Client, look: Look) -> None:
    ledger = time.time_ns()  # which no bookie has ever heard of
    writer = client.create(adv=True, ledger=ledger)
    look.at("id", lambda: int(writer.ledger == ledger))
    look.at("write", lambda: writer.write(0, b"0"))
    look.at("again", lambda: client.create(adv=True, ledger=ledger))
    look.at("close", writer.close)
    look.at("entries", lambda: client.open(ledger).read(0, 0))
    client.delete(ledger)


@row("ledgers are listed in the order of their ids")
def _listed(client: Client, look: Look) -> None:
    made = [closed(client, 0).ledger for _ in range(3)]
    listed = client.ledgers()
    look.at("sorted", lambda: int(listed == sorted(listed)))
    look.at("there", lambda: int(set(made) <= set(listed)))
    for ledger in made:
        client.delete(ledger)
    look.at("gone", lambda: int(bool(set(made) & set(client.ledgers()))))
