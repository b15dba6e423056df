"""What one running bookie answers in version 3, operation by operation, and how it tells the versions apart.

One bookie for the whole file: every test takes ledgers of its own. That every answer has its status twice, the header
of a served operation and no priority is checked by the client (raw3.answer_of), for all of them.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator

import pytest

from bkbox.base.ids import BookieId
from tests.harness import raw
from tests.harness.cluster import create_ledgers, ledger_of, pretend_a_failed_sync
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess
from tests.harness.raw import RawClient, add_frame, make_entry, master_key, payload_of, read_frame
from tests.harness.raw3 import (
    ADD,
    AUTH,
    BATCH_READ,
    EBADREQ,
    EBADVERSION,
    EFENCED,
    ENOENTRY,
    ENOLEDGER,
    EOK,
    EUA,
    EUNKNOWN,
    FENCE,
    FORCE,
    INFO,
    LIST,
    PIGGYBACK,
    RANGE_ADD,
    RANGE_READ,
    READ,
    READ_LAC,
    START_TLS,
    WRITE_LAC,
    Fields,
    RawClient3,
    add_part,
    frame,
    lac_packet,
    message,
    parse,
    read_part,
    request,
)

WRONG = master_key(b"wrong")
LEDGER, ENTRY, BODY, MAX_LAC = 2, 3, 4, 5
FRAME_BYTES_MAX = 5_242_880

_ledgers = itertools.count(1)


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieProcess]:
    root = tmp_path_factory.mktemp("v3")
    made = BookieProcess(root, f"sqlite:{root}/metadata.db").init()
    made.start()
    yield made
    assert made.stop() == 0


@pytest.fixture
def client(bookie: BookieProcess) -> Iterator[RawClient3]:
    with RawClient3(bookie.port) as made:
        yield made


@pytest.fixture
def ledger() -> int:
    return next(_ledgers)


def lac_part(ledger: int, lac: int = 0) -> Fields:
    return [(1, ledger), (2, lac), (3, master_key()), (4, lac_packet(ledger, lac))]


# ---- telling the versions apart ---------------------------------------------------------------------


def test_version_2_after_version_3_is_served_and_version_3_after_that_is_not(
    client: RawClient3, ledger: int
) -> None:
    assert client.add3(ledger, 0, b"three") == EOK
    assert client.read3(ledger, 0).status == EOK
    assert client.add(ledger, 1, b"two") == raw.EOK
    assert payload_of(client.read(ledger, 0).body) == b"three"
    client.post(READ, read_part(ledger, 0))
    with pytest.raises(EOFError):
        client.frame()


def test_both_versions_in_one_segment(client: RawClient3, ledger: int) -> None:
    three = request(ADD, 1, add_part(ledger, 0)) + request(READ_LAC, 2, [(1, ledger)])
    client.send(three + add_frame(ledger, 1, b"two") + read_frame(ledger, 1))
    bodies = [client.frame() for _ in range(4)]
    assert sorted(body[0] for body in bodies) == [2, 2, 10, 10]


def test_other_connections_are_told_apart_for_themselves(
    bookie: BookieProcess, ledger: int
) -> None:
    with RawClient3(bookie.port) as three, RawClient(bookie.port) as two:
        assert two.add(ledger, 0, b"two") == raw.EOK
        assert three.add3(ledger, 1) == EOK
        assert two.read(ledger, 1).code == raw.EOK
        assert three.read3(ledger, 0).status == EOK


@pytest.mark.parametrize("first", ["unknown operation", "no header", "no transaction", "text"])
def test_what_is_no_message_of_version_3_is_version_2_and_closed(
    client: RawClient3, ledger: int, first: str
) -> None:
    body = {
        "unknown operation": message([(1, message([(1, 3), (2, 13), (3, 1)]))]),
        "no header": message([(100, message(read_part(ledger)))]),
        "no transaction": message([(1, message([(1, 3), (2, 1)]))]),
        "text": b"GET / HTTP/1.1\r\n\r\n",
    }[first]
    client.send(frame(body))
    with pytest.raises(EOFError):
        client.frame()


@pytest.mark.parametrize("operation", [ADD, READ, WRITE_LAC, READ_LAC, FORCE, LIST])
def test_a_message_without_its_part_closes(client: RawClient3, operation: int) -> None:
    client.send(request(operation, 1))
    with pytest.raises(EOFError):
        client.frame()


def test_any_order_of_fields_and_unknown_ones(client: RawClient3, ledger: int) -> None:
    assert client.add3(ledger, 0, b"x") == EOK
    part = message([(77, b"later"), (2, 0), (1, ledger)])
    header = message([(3, 99), (9, 1), (2, READ), (1, 3)])
    client.send(frame(message([(200, message([(1, b"k"), (2, b"v")])), (100, part), (1, header)])))
    answer = client.answer3()
    assert (answer.status, answer.txn) == (EOK, 99)


# ---- headers ----------------------------------------------------------------------------------------


def test_transaction_ids_come_back_whatever_they_are(client: RawClient3, ledger: int) -> None:
    assert client.add3(ledger, 0) == EOK
    for txn in (0, 1, 127, 128, 1 << 40, (1 << 63) - 1, (1 << 64) - 1):
        client.send(request(READ, txn, read_part(ledger, 0), priority=7))
        assert client.answer3().header == {1: 3, 2: READ, 3: txn - (txn >> 63 << 64)}


@pytest.mark.parametrize("version", [1, 2])
def test_other_versions_in_a_header(client: RawClient3, ledger: int, version: int) -> None:
    ids = {LEDGER: ledger}
    for operation, part, expected in (
        (ADD, add_part(ledger, 4), ids | {ENTRY: 4}),
        (READ, read_part(ledger, 5, flag=FENCE), ids | {ENTRY: 5}),
        (READ, read_part(ledger, -1, previous=1, timeout_ms=9), ids | {ENTRY: -1}),
        (WRITE_LAC, lac_part(ledger), ids),
        (READ_LAC, [(1, ledger)], ids),
        (FORCE, [(1, ledger)], ids),
        (LIST, [(1, ledger)], ids),
        (INFO, [(1, 3)], {}),
    ):
        answer = client.ask(operation, part, version=version)
        assert (answer.status, answer.without_status()) == (EBADVERSION, expected)
    assert client.read3(ledger, 4).status == ENOLEDGER


@pytest.mark.parametrize("operation", [RANGE_READ, RANGE_ADD, BATCH_READ, START_TLS])
@pytest.mark.parametrize("version", [1, 3])
def test_operations_that_are_not_served_echo_the_header(
    client: RawClient3, operation: int, version: int
) -> None:
    client.send(request(operation, 5, version=version, priority=9))
    answer = client.answer3()
    assert (answer.status, answer.part) == (EBADREQ, None)
    assert answer.header == {1: version, 2: operation, 3: 5, 4: 9}


@pytest.mark.parametrize("part", [None, [(1, b"sasl"), (2, b"anything")]])
def test_auth_says_yes_and_echoes_the_header(
    client: RawClient3, part: Fields | None, ledger: int
) -> None:
    client.send(request(AUTH, 6, part, priority=3))
    answer = client.answer3()
    assert answer.header == {1: 3, 2: AUTH, 3: 6, 4: 3}
    assert (answer.status, answer.part) == (EOK, {1: b"AuthDisabledPlugin", 2: b""})
    assert client.add3(ledger, 0) == EOK


# ---- adds -------------------------------------------------------------------------------------------


def test_an_added_entry_is_read_back_byte_for_byte(client: RawClient3, ledger: int) -> None:
    assert client.add3(ledger, 0, b"hello") == EOK
    entry = make_entry(ledger, 0, b"hello")
    answer = client.read3(ledger, 0)
    assert answer.status == EOK
    assert answer.without_status() == {LEDGER: ledger, ENTRY: 0, BODY: entry, MAX_LAC: -1}
    assert client.read(ledger, 0).body == entry


def test_adds_by_standing_and_key(client: RawClient3, ledger: int) -> None:
    assert client.add3(ledger, 0) == EOK
    assert client.add3(ledger, 1, key=WRONG) == EUA
    assert client.add3(ledger, 1, recovery=True, key=WRONG) == EUA
    assert client.fence3(ledger).status == EOK
    assert client.add3(ledger, 1) == EFENCED
    assert client.add3(ledger, 1, deferred=True) == EFENCED
    assert client.add3(ledger, 1, recovery=True) == EOK
    assert client.add3(ledger, 2, recovery=True, deferred=True) == EOK
    assert client.add3(next(_ledgers), 3, recovery=True) == EOK


def test_bad_adds(client: RawClient3, ledger: int) -> None:
    assert client.add3(ledger, 0, body=make_entry(ledger, 0, b"")[:23]) == EBADREQ
    assert client.add3(ledger, 0, body=make_entry(ledger, 1, b"")) == EBADREQ
    assert client.add3(ledger, 0, body=make_entry(ledger + 1_000_000, 0, b"")) == EBADREQ
    assert client.add3(ledger, -1) == EBADREQ
    assert client.add3(-5, 0) == EBADREQ
    assert client.read3(ledger, 0).status == ENOLEDGER


def test_deferred_adds_are_there_and_a_force_says_so(client: RawClient3, ledger: int) -> None:
    for entry in range(5):
        assert client.add3(ledger, entry, b"%d" % entry, deferred=True) == EOK
    assert client.force(ledger) == EOK
    assert [client.read3(ledger, entry).status for entry in range(5)] == [EOK] * 5


def test_the_largest_frame(client: RawClient3, ledger: int) -> None:
    empty = len(request(ADD, 1, add_part(ledger, 0, b"L" * 5_000_000))) - 5_000_000
    payload = b"L" * (FRAME_BYTES_MAX - empty)
    data = request(ADD, 1, add_part(ledger, 0, payload))
    assert len(data) == FRAME_BYTES_MAX
    client.send(data)
    assert client.answer3().status == EOK
    answer = client.read3(ledger, 0)
    assert payload_of(bytes((answer.part or {})[BODY])) == payload


def test_many_requests_in_one_segment(client: RawClient3, ledger: int) -> None:
    adds = b"".join(request(ADD, n, add_part(ledger, n, b"%d" % n)) for n in range(2000))
    client.send(adds)
    assert sorted(client.answer3().txn for _ in range(2000)) == list(range(2000))
    reads = b"".join(request(READ, n, read_part(ledger, n % 2000)) for n in range(3000))
    client.send(reads)
    for _ in range(3000):
        answer = client.answer3()
        assert payload_of(bytes((answer.part or {})[BODY])) == b"%d" % (answer.txn % 2000)


# ---- reads ------------------------------------------------------------------------------------------


def test_plain_reads(client: RawClient3, ledger: int) -> None:
    assert client.read3(ledger, 0).status == ENOLEDGER
    assert client.add3(ledger, 3, b"x", lac=2) == EOK
    absent = client.read3(ledger, 1)
    assert (absent.status, absent.without_status()) == (ENOENTRY, {LEDGER: ledger, ENTRY: 1})
    last = client.read3(ledger).without_status()
    assert (last[ENTRY], last[BODY], last[MAX_LAC]) == (-1, make_entry(ledger, 3, b"x", 2), 2)
    assert client.read3(ledger, -2).status == EBADREQ
    assert client.read3(-1, 0).status == EBADREQ
    assert client.read3(ledger, 3, key=WRONG).status == EOK, "reading needs no key"


def test_fencing_reads(client: RawClient3, ledger: int) -> None:
    assert client.add3(ledger, 0, b"acked") == EOK
    assert client.fence3(ledger, 0, WRONG).status == EUA
    assert client.ask(READ, [(1, ledger), (2, 0), (100, FENCE)]).status == EUA, "no key at all"
    assert client.add3(ledger, 1) == EOK
    answer = client.fence3(ledger, 0)
    assert answer.status == EOK
    assert answer.without_status() == {
        LEDGER: ledger,
        ENTRY: 0,
        BODY: make_entry(ledger, 0, b"acked"),
    }
    assert client.fence3(ledger, 7).status == ENOENTRY
    assert client.add3(ledger, 2) == EFENCED
    assert client.read3(ledger, 0, flag=FENCE, previous=5, timeout_ms=60_000).status == EOK
    assert client.add(ledger, 2, b"x") == raw.EFENCED


def test_fencing_an_unknown_ledger_creates_it_fenced(client: RawClient3, ledger: int) -> None:
    assert client.fence3(ledger).status == ENOENTRY
    assert client.add3(ledger, 0) == EFENCED
    assert client.read3(ledger).status == ENOENTRY


# ---- the LAC ----------------------------------------------------------------------------------------


def test_the_explicit_lac(client: RawClient3, ledger: int) -> None:
    assert client.read_lac(ledger) == (ENOENTRY, None, None)
    assert client.write_lac(ledger, 3) == EOK
    assert client.read_lac(ledger) == (EOK, lac_packet(ledger, 3), None)
    assert client.write_lac(ledger, 9, WRONG) == EUA
    assert client.add3(ledger, 0, b"x") == EOK
    assert client.read_lac(ledger) == (EOK, lac_packet(ledger, 3), make_entry(ledger, 0, b"x"))
    assert client.fence3(ledger).status == EOK
    assert client.write_lac(ledger, 4) == EOK
    assert client.write_lac(ledger, 2) == EOK
    assert client.read_lac(ledger)[1] == lac_packet(ledger, 4)
    assert client.read3(ledger, 0).without_status()[MAX_LAC] == 4
    assert client.write_lac(ledger, 5, body=lac_packet(ledger, 5)[:15]) == EBADREQ
    assert client.write_lac(ledger, 5, body=lac_packet(ledger + 1, 5)) == EBADREQ
    assert client.write_lac(ledger, -1) == EOK


def test_a_lac_creates_its_ledger(client: RawClient3, ledger: int) -> None:
    assert client.write_lac(ledger, 0) == EOK
    assert client.read3(ledger).status == ENOENTRY
    assert client.add3(ledger, 0, key=WRONG) == EUA
    assert client.add3(ledger, 0) == EOK


def test_a_ledger_without_anything_in_it(client: RawClient3, ledger: int) -> None:
    assert client.fence3(ledger).status == ENOENTRY
    assert client.read_lac(ledger) == (ENOENTRY, None, None)
    assert client.list_entries(ledger) == (EOK, struct.pack(">ii56x", 0, 0))


# ---- the rest ---------------------------------------------------------------------------------------


def test_a_force_is_not_tied_to_a_ledger(client: RawClient3, ledger: int) -> None:
    assert client.force(ledger) == EOK
    assert client.read3(ledger, 0).status == ENOLEDGER, "a force creates nothing"
    assert client.fence3(ledger).status == ENOENTRY
    assert client.force(ledger) == EOK
    assert client.force(-1) == EBADREQ


def test_the_list_of_entries(client: RawClient3, ledger: int) -> None:
    assert client.list_entries(ledger) == (ENOLEDGER, None)
    for entry in (0, 1, 2, 7, 9):
        assert client.add3(ledger, entry) == EOK
    groups = struct.pack(">" + "qqii" * 3, 0, 0, 3, 0, 7, 7, 1, 0, 9, 9, 1, 0)
    assert client.list_entries(ledger) == (EOK, struct.pack(">ii56x", 0, 3) + groups)


def test_the_size_of_the_bookie(client: RawClient3, bookie: BookieProcess) -> None:
    """Both disks are folders of one file system, which counts once."""
    found = os.statvfs(bookie.disks[0])
    total = found.f_frsize * found.f_blocks
    assert client.ask(INFO, [(1, 1)]).without_status() == {2: total}
    [free] = client.ask(INFO, [(1, 2)]).without_status().items()
    assert free[0] == 3
    assert 0 < int(free[1]) <= total
    assert set(client.ask(INFO, [(1, 3)]).without_status()) == {2, 3}
    for part in (None, []):
        answer = client.ask(INFO, part)
        assert (answer.status, answer.without_status()) == (EOK, {})


# ---- limbo, unsynced, away --------------------------------------------------------------------------


def test_limbo_never_says_no(make_bookie: MakeBookie) -> None:
    """Version 3 has a code for it; what is there is served without the LAC, which is not known."""
    bookie = make_bookie(ack_after="write").start()
    me = BookieId(bookie.bookie_id)
    create_ledgers(bookie.metadata, [ledger_of(1, [me]), ledger_of(2, [me])])
    with RawClient3(bookie.port) as client:
        assert client.add3(1, 0, b"here") == EOK
        assert client.write_lac(1, 0) == EOK
    bookie.kill()
    pretend_a_failed_sync(bookie.disks)
    bookie.start()
    with RawClient3(bookie.port) as client:
        here = client.read3(1, 0)
        assert here.status == EOK
        assert here.without_status() == {LEDGER: 1, ENTRY: 0, BODY: make_entry(1, 0, b"here")}
        for ledger in (1, 2):
            assert client.read3(ledger, 5).status == EUNKNOWN
            assert client.fence3(ledger, 5).status == EUNKNOWN
            assert client.ask(READ_LAC, [(1, ledger)]).status == EUNKNOWN
            assert client.list_entries(ledger)[0] == EUNKNOWN
            poll = read_part(ledger, flag=PIGGYBACK, previous=-1, timeout_ms=60_000)
            assert client.ask(READ, poll).status == EUNKNOWN
            assert client.force(ledger) == EOK
            assert client.write_lac(ledger, 7) == EOK
            assert client.add3(ledger, 5) == EFENCED
            assert client.add3(ledger, 5, recovery=True) == EOK
            assert client.read3(ledger, 5).status == EOK
        # Version 2 has none that its clients know.
        assert client.read(1, 9).code == raw.EIO


@pytest.mark.parametrize("ack_after", ["sync", "journal"])
def test_deferred_adds_outlive_the_processes(make_bookie: MakeBookie, ack_after: str) -> None:
    bookie = make_bookie(journal=ack_after == "journal", ack_after=ack_after).start()
    with RawClient3(bookie.port) as client:
        for entry in range(50):
            assert client.add3(1, entry, b"%d" % entry, deferred=True) == EOK
        assert client.write_lac(1, 30) == EOK
    bookie.kill()
    bookie.start()
    with RawClient3(bookie.port) as client:
        for entry in range(50):
            found = client.read3(1, entry).without_status()
            assert payload_of(bytes(found[BODY])) == b"%d" % entry
            assert found[MAX_LAC] == 30
        assert client.force(1) == EOK


def test_nothing_of_all_this_killed_a_process(bookie: BookieProcess) -> None:
    assert {process["restarts"] for process in bookie.status()["processes"]} == {0}


def test_parse_is_the_inverse_of_message() -> None:
    fields: Fields = [(1, 0), (2, -1), (3, b""), (100, b"x" * 300), (5, (1 << 63) - 1)]
    assert parse(message(fields)) == dict(fields)
