"""Random adds, fences, deletions, compactions, crashes and restarts beside a model of three dicts; what a rebuild would
make of the segments is compared each time, too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkbox.base.values import replaced
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.log.records import (
    LAC_PACKET,
    AckAfter,
    LedgerRecord,
    Record,
    lac_of,
    lac_record,
    ledger_record,
)
from bkbox.storage.maintenance.compaction import Compaction, remove_segment
from tests.storage.bench import KEY, Host, entry, entry_bytes
from tests.storage.maintenance.compacting import look_through, reindexed, sealed

LEDGERS = 3
ENTRIES = 6

ledgers = st.integers(1, LEDGERS)
OPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), ledgers, st.integers(0, ENTRIES - 1)),
        st.tuples(st.just("open"), ledgers),
        st.tuples(st.just("fence"), ledgers),
        st.tuples(st.just("limbo"), ledgers),
        st.tuples(st.just("cleared"), ledgers),
        st.tuples(st.just("lac"), ledgers, st.integers(0, 9)),
        st.tuples(st.just("trash"), ledgers),
        st.tuples(st.just("empty"), ledgers),
        st.tuples(st.just("back"), ledgers),
        st.tuples(st.just("forget"), ledgers),
        st.tuples(st.just("seal")),
        st.tuples(st.just("seal")),
        st.tuples(st.just("checkpoint")),
        st.tuples(st.just("step"), st.integers(0, 9)),
        st.tuples(st.just("step"), st.integers(0, 9)),
        st.tuples(st.just("compact"), st.integers(0, 9)),
        st.tuples(st.just("compact"), st.integers(0, 9)),
        st.tuples(st.just("kill")),
        st.tuples(st.just("lose"), st.booleans()),
        st.tuples(st.just("restart")),
    ),
    min_size=5,
    max_size=60,
)


@dataclass
class Model:
    states: dict[int, LedgerRecord] = field(default_factory=dict)
    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    lacs: dict[int, int] = field(default_factory=dict)

    def void(self, ledger: int) -> None:
        self.states.pop(ledger, None)
        self.lacs.pop(ledger, None)
        self.entries = {key: data for key, data in self.entries.items() if key[0] != ledger}

    def check(self, index: LedgerIndex) -> None:
        assert dict(index.ledgers()) == self.states
        for ledger in range(1, LEDGERS + 1):
            packet = index.explicit_lac(ledger)
            assert (None if packet is None else lac_of(packet)) == self.lacs.get(ledger)
            for number in range(ENTRIES):
                found = index.find(ledger, number) is not None
                assert found == ((ledger, number) in self.entries), (ledger, number)


class Machine:
    def __init__(self, folder: Path, mode: AckAfter) -> None:
        self.host = Host(folder, mode)
        self.model = Model({1: LedgerRecord(KEY)})
        self.compaction: Compaction | None = None
        self.count = 0

    def run(self, ops: list[tuple[object, ...]]) -> None:
        for name, *arguments in ops:
            getattr(self, f"do_{name}")(*arguments)
            self.check()

    def check(self) -> None:
        store = self.host.store
        self.model.check(store.index)
        for (ledger, number), data in self.model.entries.items():
            assert store.read_entry(ledger, number) == data
        self.model.check(reindexed(store, self.host.files))

    def _state(self, ledger: int, **changes: object) -> None:
        before = self.model.states.get(ledger, LedgerRecord(KEY))
        state = replaced(before, **changes)
        self._put(ledger_record(ledger, state))
        self.model.states[ledger] = state

    def _put(self, *records: Record) -> None:
        """Durably: what ``write`` may lose with the host is another test's."""
        self.host.store.write(records, durable=True)

    def do_add(self, ledger: int, number: int) -> None:
        if self.model.states.get(ledger, LedgerRecord()).emptied:
            return
        if ledger not in self.model.states:
            self._state(ledger)
        self.count += 1
        payload = b"%d" % self.count
        self._put(entry(ledger, number, payload))
        self.model.entries[ledger, number] = entry_bytes(ledger, number, payload)

    def do_open(self, ledger: int) -> None:
        if ledger not in self.model.states:
            self._state(ledger)

    def do_fence(self, ledger: int) -> None:
        self._state(ledger, fenced=True)

    def do_limbo(self, ledger: int) -> None:
        self._state(ledger, fenced=True, limbo=True, deleted_ms=0, emptied=False)

    def do_cleared(self, ledger: int) -> None:
        if ledger in self.model.states:
            self._state(ledger, limbo=False)

    def do_lac(self, ledger: int, value: int) -> None:
        if ledger in self.model.states and not self.model.states[ledger].emptied:
            self._put(lac_record(LAC_PACKET.pack(ledger, value)))
            self.model.lacs[ledger] = max(value, self.model.lacs.get(ledger, -1))

    def do_trash(self, ledger: int) -> None:
        if ledger in self.model.states:
            self._state(ledger, fenced=True, deleted_ms=self.count + 1)

    def do_empty(self, ledger: int) -> None:
        if self.model.states.get(ledger, LedgerRecord()).deleted_ms:
            self._state(ledger, emptied=True)
            state = self.model.states[ledger]
            self.model.void(ledger)
            self.model.states[ledger] = state

    def do_back(self, ledger: int) -> None:
        if ledger in self.model.states:
            self._state(ledger, deleted_ms=0, emptied=False)

    def do_forget(self, ledger: int) -> None:
        self.host.store.forget(ledger)
        self.model.void(ledger)

    def do_seal(self) -> None:
        self.host.store.log.seal()

    def do_checkpoint(self) -> None:
        self.host.store.checkpoint()

    def do_step(self, which: int) -> None:
        """A part of a compaction, with other things before the next part."""
        store = self.host.store
        if self.compaction is None:
            segments = sealed(store)
            if segments:
                self.compaction = Compaction(
                    store, store.ledger_state, segments[which % len(segments)]
                )
            return
        self.compaction.step()
        if self.compaction.needs is not None:
            compaction, self.compaction = self.compaction, None
            store.checkpoint()
            remove_segment(store, compaction, look_through(store))

    def do_compact(self, which: int) -> None:
        store, segments = self.host.store, sealed(self.host.store)
        if not segments:
            return
        self.compaction = None
        compaction = Compaction(store, store.ledger_state, segments[which % len(segments)])
        while compaction.needs is None:
            compaction.step()
        store.checkpoint()
        why = remove_segment(store, compaction, look_through(store))
        assert why in ("", compaction.kept)

    def do_kill(self) -> None:
        self.compaction = None
        self.host.kill()

    def do_lose(self, index_reached_the_disk: bool) -> None:
        self.compaction = None
        self.host.lose(index_reached_the_disk=index_reached_the_disk)
        self.host.store.resolve_losses()

    def do_restart(self) -> None:
        self.compaction = None
        self.host.store.close()
        self.host.open(host_crash=False)


@pytest.mark.parametrize("examples", [40, pytest.param(150, marks=pytest.mark.slow)])
def test_nothing_is_lost_and_nothing_comes_back(examples: int) -> None:
    @settings(max_examples=examples)
    @given(ops=OPS, mode=st.sampled_from(list(AckAfter)))
    def check(ops: list[tuple[object, ...]], mode: AckAfter) -> None:
        with TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            Machine(Path(folder), mode).run(ops)

    check()
