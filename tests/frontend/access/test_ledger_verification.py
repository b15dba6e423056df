"""Who waits for the metadata store before a ledger is made, and what it is told."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bkbox.frontend.access import ledger_verification
from bkbox.frontend.access.ledger_verification import (
    CHECK_TIMEOUT_S,
    CHECKS_MAX,
    Finding,
    LedgerVerification,
)
from bkbox.wire.codes import Code
from tests.harness.seeds import EXAMPLES

KEY, OTHER = b"k" * 20, b"o" * 20


class Scene:
    """``asked``: the ledgers that the metadata store was asked for; ``woken``: connections."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.asked: list[int] = []
        self.woken: list[int] = []
        self.known: set[int] = set()
        self.vouching = LedgerVerification(
            lambda ledger: ledger in self.known, self.asked.append, lambda: self.now_s
        )

    def take(self, connection: int, ledger: int, key: bytes | None = KEY) -> Code | None:
        code = self.vouching.verdict(connection, ledger, key)
        if code is None:
            assert self.vouching.wait(connection, Waiter(self, connection))
        else:
            assert not self.vouching.wait(connection, Waiter(self, connection))
        return code


class Waiter:
    def __init__(self, scene: Scene, connection: int) -> None:
        self._scene = scene
        self._connection = connection

    def on_slot_free(self) -> None:
        self._scene.woken.append(self._connection)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_is_known_here_is_not_asked_for(scene: Scene) -> None:
    scene.known = {7}
    assert scene.take(1, 7, None) is Code.EOK
    assert scene.asked == []


def test_a_ledger_that_is_there(scene: Scene) -> None:
    assert [scene.take(1, 7), scene.take(2, 7, OTHER), scene.take(3, 7, None)] == [None] * 3
    assert scene.asked == [7], "one question for all"
    scene.vouching.found(7, Finding.THERE, KEY)
    assert scene.woken == [1, 2, 3]
    assert scene.take(1, 7) is Code.EOK
    assert scene.take(2, 7, OTHER) is Code.EUA
    assert scene.take(3, 7, None) is Code.EUA, "a request without a key has not the right one"
    assert scene.asked == [7], "the key is kept"
    scene.known = {7}
    assert scene.take(1, 7) is Code.EOK
    assert scene.take(2, 7, OTHER) is Code.EUA, "the disk may have refused the right one"


def test_a_ledger_whose_metadata_have_no_password_takes_the_first_key(scene: Scene) -> None:
    assert scene.take(1, 7) is None
    scene.vouching.found(7, Finding.THERE, b"")
    assert scene.take(1, 7, None) is Code.EUA
    assert scene.take(1, 7) is Code.EOK


def test_what_is_not_there_is_so_for_those_who_waited_when_it_was_asked(scene: Scene) -> None:
    assert scene.take(1, 7) is None
    assert scene.take(2, 7) is None, "it came later: the ledger may be there by now"
    scene.vouching.found(7, Finding.ABSENT, b"")
    assert scene.woken == [1]
    assert scene.take(1, 7) is Code.ENOLEDGER
    assert scene.asked == [7, 7]
    scene.vouching.found(7, Finding.THERE, KEY)
    assert scene.woken == [1, 2]
    assert scene.take(2, 7) is Code.EOK


@pytest.mark.parametrize("finding", [Finding.UNAVAILABLE, Finding.UNKNOWN])
def test_a_store_that_does_not_tell(scene: Scene, finding: Finding) -> None:
    assert [scene.take(1, 7), scene.take(2, 7)] == [None, None]
    scene.vouching.found(7, finding, b"")
    assert [scene.take(1, 7), scene.take(2, 7)] == [Code.EIO, Code.EIO]
    if finding is Finding.UNAVAILABLE:
        assert scene.take(3, 8) is Code.EIO, "nobody waits for it again at once"
        scene.now_s += 1
    assert scene.take(3, 8) is None


def test_a_supervisor_that_does_not_answer(scene: Scene) -> None:
    assert scene.vouching.wait_s() is None
    assert scene.take(1, 7) is None
    assert scene.vouching.wait_s() == CHECK_TIMEOUT_S
    scene.now_s += CHECK_TIMEOUT_S
    scene.vouching.tick()
    assert scene.take(1, 7) is Code.EIO
    scene.vouching.found(7, Finding.THERE, KEY)  # late
    scene.now_s += 1
    assert scene.take(1, 7) is None


def test_no_more_questions_than_there_may_be(scene: Scene) -> None:
    count = CHECKS_MAX + 10
    assert [scene.take(number, number) for number in range(count)] == [None] * count
    assert scene.asked == list(range(CHECKS_MAX))
    scene.vouching.forget(CHECKS_MAX)
    scene.vouching.found(0, Finding.THERE, KEY)
    assert scene.woken == [0, CHECKS_MAX + 1], "one place is free: the first of the line"


def test_keys_are_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_verification, "_KEYS_MAX", 2)
    for ledger in (1, 2, 1, 3):
        if scene.take(9, ledger) is None:
            scene.vouching.found(ledger, Finding.THERE, KEY)
    assert scene.take(9, 1) is Code.EOK
    assert scene.take(9, 3) is Code.EOK
    assert scene.take(9, 2) is None


class Connections(RuleBasedStateMachine):
    """Whatever comes in whatever order: nobody waits for ever, and nobody is let through without a proof."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()
        self.waiting: dict[int, int] = {}

    @rule(connection=st.integers(0, 200), ledger=st.integers(0, 100))
    def take(self, connection: int, ledger: int) -> None:
        if connection not in self.waiting:
            self._look(connection, ledger)

    def _look(self, connection: int, ledger: int) -> None:
        if self.scene.take(connection, ledger) is None:
            self.waiting[connection] = ledger

    @precondition(lambda self: self.scene.asked)
    @rule(which=st.integers(0, 1000), finding=st.sampled_from(Finding))
    def answer(self, which: int, finding: Finding) -> None:
        asked = self.scene.asked
        self.scene.vouching.found(asked.pop(which % len(asked)), finding, KEY)
        self.go_on()

    @rule()
    def time_passes(self) -> None:
        self.scene.now_s += CHECK_TIMEOUT_S
        self.scene.asked.clear()
        self.scene.vouching.tick()
        self.go_on()

    @rule(connection=st.integers(0, 200))
    def close(self, connection: int) -> None:
        self.scene.vouching.forget(connection)
        self.waiting.pop(connection, None)

    def go_on(self) -> None:
        while self.scene.woken:
            woken, self.scene.woken = self.scene.woken, []
            for connection in woken:
                if connection in self.waiting:
                    self._look(connection, self.waiting.pop(connection))

    @invariant()
    def whoever_waits_will_be_woken(self) -> None:
        if self.waiting:
            assert self.scene.vouching.wait_s() is not None

    def teardown(self) -> None:
        for _ in range(500):
            if not self.waiting:
                break
            self.time_passes()
        assert self.waiting == {}


TestConnections = Connections.TestCase
TestConnections.settings = settings(max_examples=EXAMPLES, stateful_step_count=60, deadline=None)
