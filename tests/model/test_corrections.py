"""Each correction of the published model changes the one thing that it is about."""

from __future__ import annotations

from typing import Any

from bkbox.base.values import replaced
from proof.model import bookies, ensembles, recovery
from proof.model.network import DONE, LOST, THERE, Code, Kind, Message
from proof.model.options import Corrections, Options, Status
from proof.model.state import ActorView, Client, Fragment, Pending, Phase, Role, World
from proof.model.steps import Task, outcomes

BOTH = 0b11
FRAGMENTS = (Fragment(BOTH, 1),)
BASE = Options(message_loss=False)


def without(**changes: bool) -> Options:
    return replaced(BASE, corrections=replaced(Corrections(), **changes))


def recovering(phase: Phase, **changes: Any) -> Client:
    return Client(
        role=Role.RECOVERING, version=2, fragments=FRAGMENTS, acks=(0, 0), phase=phase
    )._replace(**changes)


def answered(code: Code, entry: int = 1, body: int = 0) -> ActorView:
    answer = Message(Kind.RESPONSE, 0, entry, body, code=code)
    return ActorView(fenced=True, mail=((answer, THERE),))


def test_d3_a_recovery_that_changed_the_ensemble_closes_and_writes_its_fragments() -> None:
    world = World(Status.RECOVERING, FRAGMENTS, version=2)
    client = recovering(Phase.WRITING, fragments=(Fragment(0b110, 1),))
    options = replaced(BASE, bookies=3)

    def closes(options: Options) -> list[World | None]:
        steps = recovery.moves(world, client, 0, options)
        return [step.world for step in steps if "closes" in step.words]

    [closed] = closes(options)
    assert closed is not None
    assert closed.fragments == client.fragments
    published = replaced(options, corrections=replaced(Corrections(), fragments_at_close=False))
    assert closes(published) == []


def test_d4_the_timeouts_of_a_read_count_whatever_the_last_answer_says() -> None:
    client = recovering(Phase.AWAITING)
    part = answered(Code.NO_SUCH_ENTRY, entry=0)
    old = replaced(without(responses_have_ids=False), ack_quorum=2)
    steps = list(recovery.receive(client, part, True, 0, 0, old))
    assert {task.task for step in steps for _, task in step.deliveries} == {
        Task.READ_TIMEOUT_ENDS,
        Task.NO_READ_TIMEOUT,
    }
    rules = replaced(old.corrections, timeouts_of_the_read=False)
    published = replaced(old, corrections=rules)
    [only] = recovery.receive(client, part, True, 0, 0, published)
    assert only.deliveries == ()


def test_d5_a_recovery_that_starts_from_a_lac_confirms_what_it_writes_back() -> None:
    client = recovering(Phase.WRITING, lac=1, pushed=2, pending=(Pending(2, 2, 0, BOTH),))
    after = ensembles.acknowledged(client, 2, 0, BASE)
    assert (after.lac, after.pending) == (2, ())
    published = ensembles.acknowledged(client, 2, 0, without(lac_counts=False))
    assert (published.lac, published.pending) == (1, client.pending)


def test_d6_a_read_ends_at_the_first_holder_and_drops_what_comes_later() -> None:
    client = recovering(Phase.AWAITING)
    part = answered(Code.OK, body=1)
    early = without(early_reads=True)
    phases = {
        step.client.phase
        for step in recovery.receive(client, part, True, 0, 0, early)
        if step.client
    }
    assert phases == {Phase.READING}
    waiting = {
        step.client.phase
        for step in recovery.receive(client, part, True, 0, 0, BASE)
        if step.client
    }
    assert waiting == {Phase.AWAITING, Phase.READING}
    reading = recovering(Phase.READING, pushed=1)
    [late] = recovery.receive(reading, part, True, 0, 0, early)
    assert late.client == reading


def test_d7_the_order_of_adds_and_timeouts_are_those_of_one_client() -> None:
    first = Message(Kind.ADD, 0, 1, 1)
    second = Message(Kind.ADD, 1, 2, 2)
    part = ActorView(mail=((first, THERE), (second, THERE)))
    assert len(list(bookies.moves(part, "", BASE))) == 1
    assert len(list(bookies.moves(part, "", without(per_client=True)))) == 2
    world = World(Status.RECOVERING, FRAGMENTS, version=2)
    options = replaced(BASE, bookies=3)
    client = recovering(Phase.WRITING)
    mine = replaced(options, corrections=replaced(Corrections(), per_client=True))
    for chosen, whose in ((options, None), (mine, 0)):
        replacing = ensembles.replace_bookies(world, client, 0, chosen, recovery=True)
        assert {
            delivery.client for _, deliveries, _ in replacing for _, delivery in deliveries
        } == {whose}


def test_d8_a_read_that_ends_neither_way_fails_its_recovery() -> None:
    client = recovering(Phase.AWAITING, unknown=0b10)
    part = answered(Code.UNKNOWN)
    stuck = [
        s
        for s in recovery.receive(client, part, True, 0, 0, BASE)
        if not s.deliveries or s.deliveries[0][1].task is Task.NO_READ_TIMEOUT
    ]
    assert stuck == []
    failing = list(recovery.receive(client, part, True, 0, 0, without(failed_reads=True)))
    assert Role.WITHDRAWN in {step.client.role for step in failing if step.client}


def test_d9_a_negative_answer_says_which_entry_it_is_about() -> None:
    read = Message(Kind.READ, 0, 2)
    part = ActorView(mail=((read, THERE),))

    def answers(options: Options) -> set[int]:
        [step] = bookies.moves(part, "", options)
        assert step.part is not None
        return {message.entry for message, fate in step.part.mail if fate == THERE}

    assert answers(BASE) == {2}
    assert answers(without(responses_have_ids=False)) == {0}


def test_first_holder_one_bookie_that_has_the_entry_is_enough() -> None:
    options = replaced(BASE, ack_quorum=2)
    client = recovering(Phase.AWAITING, has=0b10, body=1)
    part = ActorView(mail=((Message(Kind.RESPONSE, 0, 1, 0, code=Code.NO_SUCH_ENTRY), THERE),))

    def phases(first_holder: bool) -> set[Phase]:
        rules = replaced(Corrections(), first_holder=first_holder)
        steps = recovery.receive(client, part, True, 0, 0, replaced(options, corrections=rules))
        ended = [s for s in steps if s.deliveries[0][1].task is Task.NO_READ_TIMEOUT]
        return {step.client.phase for step in ended if step.client}

    assert Phase.READING in phases(True)
    assert Phase.WRITING in phases(False)


def test_a_lost_message_is_a_timeout_until_somebody_acts_on_it() -> None:
    add = Message(Kind.ADD, 0, 1, 1, True)
    part = ActorView(mail=((add, LOST),))
    world = World(Status.RECOVERING, FRAGMENTS, version=2)
    options = replaced(BASE, bookies=3)
    found = ensembles.replace_bookies(world, recovering(Phase.WRITING), 0, options, recovery=True)
    [(bookie, delivery)] = next(found)[1]
    assert bookie == 0
    [after] = outcomes(delivery, part, loss=False)
    assert after.mail == ((add, DONE),)
    assert list(outcomes(delivery, after, loss=False)) == []
