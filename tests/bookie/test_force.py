"""Deferred adds and forces through batches: when there is a sync, and what a lost host leaves."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from bkbox.bookie.bookie import Bookie
from bkbox.bookie.readonly import DISK_FAILED
from bkbox.errors import DiskFailedError
from bkbox.storage.log.records import AckAfter, LedgerRecord
from bkbox.wire.availability import decode
from tests.bookie.bench import add3, ask3, bookie_of, process, read3, simple3, statuses, write_lac3
from tests.harness import raw, raw3
from tests.harness.raw3 import EIO, ENOENTRY, EOK, EUNKNOWN, FENCE, FORCE, LIST, READ_LAC
from tests.storage.bench import KEY, Host
from tests.storage.conftest import ram_path

__all__ = ["ram_path"]

MODES = list(AckAfter)
FORCED = simple3(FORCE, 1)


def deferred(*entries: int, ledger: int = 1) -> list[bytes]:
    return [add3(ledger, entry, key=KEY, deferred=True) for entry in entries]


def codes(bookie: Bookie, *frames: bytes) -> list[int]:
    return [int.from_bytes(body[4:8], "big") for body in process(bookie, *frames)]


class Syncs:
    """Syncs since the last question."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._before = host.files.syncs

    def count(self) -> int:
        found, self._before = self._host.files.syncs - self._before, self._host.files.syncs
        return found


@pytest.fixture
def hosts(ram_path) -> Iterator[object]:
    made: list[Host] = []

    def make(mode: AckAfter, seed: int = 1) -> Host:
        made.append(Host(ram_path / str(len(made)), mode, seed))
        return made[-1]

    yield make
    for host in made:
        host.store.abandon()


@pytest.mark.parametrize("mode", MODES)
def test_when_there_is_a_sync(hosts, mode: AckAfter) -> None:
    host = hosts(mode)
    bookie: Bookie = bookie_of(host.store)
    syncs = Syncs(host)
    ordinary = 0 if mode is AckAfter.WRITE else 1
    marks = 1 if mode is AckAfter.WRITE else 0
    assert statuses(bookie, *deferred(0, 1, 2)) == [EOK] * 3
    assert syncs.count() == marks, "that the ledger is active is durable before what is not"
    assert statuses(bookie, *deferred(3), add3(1, 4, key=KEY)) == [EOK] * 2
    assert syncs.count() == ordinary, "one for all of the batch"
    assert statuses(bookie, *deferred(5)) == [EOK]
    assert statuses(bookie, add3(1, 6, key=KEY, deferred=True, recovery=True)) == [EOK]
    assert syncs.count() == ordinary, "a recovery add is not deferred"
    assert statuses(bookie, *deferred(7), FORCED) == [EOK] * 2
    assert syncs.count() == 1
    assert statuses(bookie, FORCED, FORCED) == [EOK] * 2
    assert syncs.count() == 0, "there is nothing left to sync"
    assert statuses(bookie, *deferred(0, ledger=2)) == [EOK]
    assert syncs.count() == 1, "a creation is on disk before it is answered"
    assert statuses(bookie, *deferred(8), write_lac3(1, 0, key=KEY)) == [EOK] * 2
    assert syncs.count() == 1, "so is an explicit LAC"
    assert statuses(bookie, *deferred(9), read3(1, flag=FENCE, key=KEY)) == [EOK] * 2
    assert syncs.count() == 1, "and a fence"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("together", [True, False])
def test_what_was_forced_survives_a_lost_host(hosts, mode: AckAfter, together: bool) -> None:
    for seed in range(5):
        host = hosts(mode, seed)
        bookie = bookie_of(host.store)
        assert statuses(bookie, *deferred(*range(10))) == [EOK] * 10
        if together:
            assert statuses(bookie, *deferred(10, 11), FORCED) == [EOK] * 3
        else:
            assert statuses(bookie, *deferred(10, 11)) == [EOK] * 2
            assert statuses(bookie, FORCED) == [EOK]
        after = bookie_of(host.lose())
        assert statuses(after, *(read3(1, entry) for entry in range(12))) == [EOK] * 12


@pytest.mark.parametrize("mode", [AckAfter.SYNC, AckAfter.JOURNAL])
def test_what_was_not_forced_may_be_gone_and_the_ledger_is_not(hosts, mode: AckAfter) -> None:
    """A lost host leaves what it likes of it, and it is never in limbo for that."""
    kept = set()
    for seed in range(20):
        host = hosts(mode, seed)
        bookie = bookie_of(host.store)
        assert statuses(bookie, add3(5, 0)) == [EOK]
        assert (
            statuses(bookie, *(add3(5, n, b"x" * 600, deferred=True) for n in (1, 2, 3)))
            == [EOK] * 3
        )
        after = bookie_of(host.lose())
        assert host.report.trusted
        assert statuses(after, read3(5, 0)) == [EOK]
        found = statuses(after, read3(5, 1), read3(5, 2), read3(5, 3))
        assert set(found) <= {EOK, ENOENTRY}
        kept.add(found.count(EOK))
        assert statuses(after, add3(5, 4)) == [EOK]
    assert len(kept) > 1, "the host has to lose something some time"


def test_a_force_whose_sync_fails(hosts) -> None:
    host = hosts(AckAfter.SYNC)
    bookie = bookie_of(host.store)
    assert statuses(bookie, *deferred(0)) == [EOK]
    host.files.fail_sync(1)
    assert statuses(bookie, *deferred(1), FORCED) == [EIO, EIO]  # one group, which waited for it
    assert bookie.read_only.reasons == {DISK_FAILED}
    assert statuses(bookie, FORCED) == [EIO]
    assert statuses(bookie, read3(1, 0)) == [EOK]


def test_any_mixture_of_batches(hosts) -> None:
    """Adds of both kinds, forces and lost hosts: nothing synced is ever missing or older than it was."""
    rng = random.Random(11)
    for seed in range(12):
        host = hosts(rng.choice([AckAfter.SYNC, AckAfter.JOURNAL]), seed)
        bookie = bookie_of(host.store)
        synced: dict[int, int] = {}
        latest: dict[int, int] = {}
        for turn in range(30):
            batch, all_deferred = [], True
            for entry in rng.sample(range(12), rng.randint(1, 4)):
                is_deferred = rng.random() < 0.7
                all_deferred = all_deferred and is_deferred
                batch.append(add3(1, entry, b"%d" % turn, key=KEY, deferred=is_deferred))
                latest[entry] = turn
            if rng.random() < 0.2:
                batch.append(FORCED)
                all_deferred = False
            assert set(statuses(bookie, *batch)) == {EOK}
            if not all_deferred:
                synced |= latest
            if rng.random() < 0.15:
                bookie = bookie_of(host.lose())
                assert host.report.trusted
                found = {}
                for entry in range(12):
                    _code, data = bookie.reader.entry(1, entry)
                    if data is not None:
                        found[entry] = int(raw.payload_of(data))
                    assert found.get(entry, -1) >= synced.get(entry, -1)
                    assert found.get(entry, -1) <= latest.get(entry, -1)
                latest, synced = dict(found), dict(found)


# ---- what only bkbox's bookies know -----------------------------------------------------------------


def persisted(ledger: int) -> bytes:
    return raw3.request(READ_LAC, 9, [(1, ledger), (1000, 1)])


def synced(*entries: int) -> list[bytes]:
    """Adds that ask for a sync."""
    return [
        raw3.request(raw3.ADD, 1, [*raw3.add_part(1, entry, b"x", key=KEY), (5, 1 << 16)])
        for entry in entries
    ]


def state_of(bookie: Bookie, frame: bytes) -> tuple[int, tuple[object, ...]]:
    """Status; the durable entry, fenced, limbo."""
    [answer] = ask3(bookie, frame)
    assert answer.part is not None
    return answer.status, tuple(answer.part.get(number) for number in (1000, 1001, 1002))


@pytest.mark.parametrize("mode", MODES)
def test_a_persisted_question_waits_for_what_was_answered_before(hosts, mode: AckAfter) -> None:
    host = hosts(mode)
    bookie: Bookie = bookie_of(host.store)
    syncs = Syncs(host)
    assert statuses(bookie, add3(1, 0, key=KEY), add3(1, 1, key=KEY)) == [EOK] * 2
    syncs.count()
    assert statuses(bookie, add3(1, 2, key=KEY)) == [EOK]
    syncs.count()
    assert state_of(bookie, persisted(1)) == (EOK, (2, 0, 0))
    assert syncs.count() == (1 if mode is AckAfter.WRITE else 0)
    assert state_of(bookie, persisted(1)) == (EOK, (2, 0, 0))
    assert syncs.count() == 0, "there is nothing left to sync"
    assert state_of(bookie, simple3(READ_LAC, 1)) == (EOK, (None, 0, 0))
    assert syncs.count() == 0
    assert state_of(bookie, persisted(2)) == (ENOENTRY, (-1, None, None))
    after = bookie_of(host.lose())
    assert statuses(after, *(read3(1, entry) for entry in range(3))) == [EOK] * 3


def test_what_is_added_with_a_persisted_question_is_not_vouched_for(hosts) -> None:
    """The answer names what was there when the question came; the entry behind it was never answered then."""
    bookie = bookie_of(hosts(AckAfter.WRITE).store)
    assert statuses(bookie, add3(1, 0, key=KEY)) == [EOK]
    answers = ask3(bookie, persisted(1), add3(1, 1, key=KEY))
    [lac] = [answer for answer in answers if answer.operation == READ_LAC]
    assert lac.part is not None
    assert lac.part[1000] == 0


def test_a_disk_that_fails_to_sync_vouches_for_nothing(hosts) -> None:
    host = hosts(AckAfter.WRITE)
    bookie = bookie_of(host.store)
    assert statuses(bookie, add3(1, 0, key=KEY)) == [EOK]
    assert statuses(bookie, add3(1, 1, key=KEY)) == [EOK]
    host.files.fail_sync(1)
    assert state_of(bookie, persisted(1)) == (EIO, (None, None, None))


@pytest.mark.parametrize("mode", MODES)
def test_a_fence_that_is_not_durable_is_answered_by_no_later_one_as_done(
    hosts, mode: AckAfter
) -> None:
    host = hosts(mode)
    bookie = bookie_of(host.store)
    assert codes(bookie, raw.add_frame(1, 0, b"x", key=KEY)) == [raw.EOK]
    host.files.fail_sync(1)
    for _again in range(3):
        assert codes(bookie, raw.read_frame(1, 0, raw.FENCE, key=KEY)) == [raw.EIO]
    assert not host.store.ledger_state(1).fenced


@pytest.mark.parametrize("mode", MODES)
def test_states_that_are_not_durable_do_not_count(hosts, mode: AckAfter) -> None:
    host = hosts(mode)
    bookie = bookie_of(host.store)
    assert codes(bookie, raw.add_frame(1, 0, b"x", key=KEY)) == [raw.EOK]
    host.files.fail_sync(1)
    with pytest.raises(DiskFailedError):
        bookie.set_states({1: LedgerRecord(KEY, fenced=True)})
    assert codes(bookie, raw.read_frame(1, 0, raw.FENCE, key=KEY)) == [raw.EIO]
    assert not bookie.newest_state(1).fenced


def test_the_state_of_a_ledger_is_told_with_its_lac(hosts) -> None:
    bookie = bookie_of(hosts(AckAfter.WRITE).store)
    assert statuses(bookie, add3(1, 0, key=KEY)) == [EOK]
    assert state_of(bookie, simple3(READ_LAC, 1)) == (EOK, (None, 0, 0))
    statuses(bookie, read3(1, flag=FENCE, key=KEY))
    assert state_of(bookie, simple3(READ_LAC, 1)) == (EOK, (None, 1, 0))
    bookie.set_states({1: LedgerRecord(master_key=KEY, fenced=True, limbo=True)})
    assert state_of(bookie, persisted(1)) == (EUNKNOWN, (0, 1, 1))
    [listed] = ask3(bookie, simple3(LIST, 1))
    assert listed.part is not None
    assert (listed.status, [*decode(listed.part[3])]) == (EUNKNOWN, [0])


@pytest.mark.parametrize("mode", MODES)
def test_an_add_may_ask_for_a_sync_in_every_mode(hosts, mode: AckAfter) -> None:
    host = hosts(mode)
    bookie = bookie_of(host.store)
    assert statuses(bookie, add3(1, 0, key=KEY)) == [EOK]
    syncs = Syncs(host)
    assert statuses(bookie, *synced(1, 2)) == [EOK] * 2
    assert syncs.count() == 1, "one for all of the batch"
    assert statuses(bookie, add3(1, 3, key=KEY)) == [EOK]
    assert syncs.count() == (0 if mode is AckAfter.WRITE else 1)
    after = bookie_of(host.lose())
    assert statuses(after, read3(1, 1), read3(1, 2)) == [EOK] * 2
