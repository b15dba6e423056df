"""Requests for ledgers that a front-end does not know: who waits, and which answer counts for whom."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bkbox.frontend.ledger_queries import QUERY_TIMEOUT_S, Answer, LedgerQueries
from tests.harness.seeds import EXAMPLES


class Waiter:
    def __init__(self, scene: Scene, connection: int) -> None:
        self._scene = scene
        self._connection = connection

    def on_slot_free(self) -> None:
        self._scene.woken.append(self._connection)


class Scene:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.sent: list[tuple[int, list[tuple[int, bool]]]] = []
        self.woken: list[int] = []
        self.queries = LedgerQueries(
            lambda number, ledgers: self.sent.append((number, ledgers)), lambda: self.now_s
        )

    def ask(self, connection: int, ledger: int, *, creates: bool = False) -> Answer | None:
        answer = self.queries.answer(connection, ledger, creates=creates)
        waits = self.queries.wait(connection, Waiter(self, connection))
        assert waits == (answer is None)
        return answer


def test_queries_of_a_turn_are_one_batch() -> None:
    scene = Scene()
    assert scene.queries.wait_s() is None
    for connection in (1, 2, 3):
        assert scene.ask(connection, 7, creates=connection == 2) is None
    assert scene.ask(4, 8) is None
    assert scene.sent == []
    assert scene.queries.wait_s() == 0.0
    scene.queries.tick()
    assert scene.sent == [(1, [(7, True), (8, False)])]
    scene.queries.placed(7)
    assert scene.woken == [1, 2, 3]
    scene.queries.denied(1, 8, Answer.NOWHERE)
    assert scene.woken == [1, 2, 3, 4]
    assert scene.ask(4, 8) is Answer.NOWHERE
    scene.queries.tick()
    assert scene.queries.wait_s() is None


def test_an_answer_denies_nothing_to_a_request_that_came_after_its_query() -> None:
    scene = Scene()
    assert scene.ask(1, 7) is None
    scene.queries.tick()
    assert scene.ask(2, 7) is None
    scene.queries.tick()
    scene.queries.denied(1, 7, Answer.NOWHERE)
    assert scene.woken == [1]
    assert scene.ask(1, 7) is Answer.NOWHERE
    assert scene.ask(1, 7) is None, "the next request of the same connection asks again"
    scene.queries.placed(7)
    assert sorted(scene.woken) == [1, 1, 2]


def test_without_an_answer_it_is_unknown_and_a_late_one_denies_nothing() -> None:
    scene = Scene()
    assert scene.ask(1, 7) is None
    scene.queries.tick()
    scene.now_s += QUERY_TIMEOUT_S
    assert scene.queries.wait_s() == 0.0
    scene.queries.tick()
    assert scene.woken == [1]
    assert scene.ask(1, 7) is Answer.UNKNOWN
    assert scene.ask(2, 7) is None
    scene.queries.tick()
    scene.queries.denied(1, 7, Answer.NOWHERE)
    assert scene.woken == [1], "it was for the query that has timed out"
    scene.queries.denied(2, 7, Answer.NOWHERE)
    assert scene.woken == [1, 2]


def test_a_closed_connection_leaves_nothing() -> None:
    scene = Scene()
    for connection in (1, 2, 3):
        assert scene.ask(connection, 7) is None
    scene.queries.forget(1)
    scene.queries.tick()
    scene.queries.forget(2)
    scene.queries.denied(1, 7, Answer.NOWHERE)
    assert scene.woken == [3]
    scene.queries.forget(3)
    assert vars(scene.queries)["_answers"] == {}


LEDGERS = (1, 2)


class Denials(RuleBasedStateMachine):
    """A supervisor that assigns ledgers at any moment, and answers late: an assigned ledger is never denied to a
    request that came after the assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()
        self.assigned: set[int] = set()
        self.waiting: dict[int, tuple[int, bool]] = {}
        """By connection: the ledger of its request, and whether it was assigned when the request came."""
        self.on_the_way: list[tuple[int, int, Answer | None]] = []
        self.seen = 0

    @rule(connection=st.integers(1, 4), ledger=st.sampled_from(LEDGERS))
    def request(self, connection: int, ledger: int) -> None:
        if connection not in self.waiting and self.scene.ask(connection, ledger) is None:
            self.waiting[connection] = ledger, ledger in self.assigned

    @rule()
    def turn(self) -> None:
        self.scene.queries.tick()

    @precondition(lambda self: self.seen < len(self.scene.sent))
    @rule()
    def supervise(self) -> None:
        number, ledgers = self.scene.sent[self.seen]
        self.seen += 1
        for ledger, _creates in ledgers:
            answer = None if ledger in self.assigned else Answer.NOWHERE
            self.on_the_way.append((number, ledger, answer))

    @rule(ledger=st.sampled_from(LEDGERS))
    def assign(self, ledger: int) -> None:
        if ledger not in self.assigned:
            self.assigned.add(ledger)
            self.on_the_way.append((0, ledger, None))

    @rule(passed_s=st.sampled_from([0.0, QUERY_TIMEOUT_S]))
    def pass_time(self, passed_s: float) -> None:
        self.scene.now_s += passed_s

    @precondition(lambda self: self.on_the_way)
    @rule()
    def receive(self) -> None:
        number, ledger, answer = self.on_the_way.pop(0)
        if answer is None:
            self.scene.queries.placed(ledger)
        else:
            self.scene.queries.denied(number, ledger, answer)

    @invariant()
    def denies_nothing_assigned(self) -> None:
        woken, self.scene.woken = self.scene.woken, []
        for connection in woken:
            ledger, was_assigned = self.waiting.pop(connection)
            answer = self.scene.queries.answer(connection, ledger, creates=False)
            if answer is Answer.NOWHERE:
                assert not was_assigned
            elif answer is None:  # the ledger is known, or asked for again
                self.scene.queries.forget(connection)


TestDenials = Denials.TestCase
TestDenials.settings = settings(max_examples=EXAMPLES, deadline=None)
