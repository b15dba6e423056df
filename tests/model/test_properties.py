"""The properties of proof/checks that the model asks, and which of them it asks when."""

from __future__ import annotations

import pytest

from bkbox.base.values import replaced
from proof.checks import divergence, fragments, held, order, replication
from proof.model.options import Options, Status
from proof.model.properties import TYPES, Safety
from proof.model.state import ActorView, Client, Fragment, Role, World


@pytest.mark.parametrize(
    ("holds", "breaks"),
    [
        (order.in_order([(1, 1), (2, 2)]), order.in_order([(1, 1), (2, 1)])),
        (divergence.no_divergence(1, [0, 1]), divergence.no_divergence(1, [2])),
        (divergence.no_divergence(None, [9]), divergence.no_divergence(0, [1])),
        (replication.replicated(1, [2], 2), replication.replicated(2, [2, 1], 2)),
        (replication.replicated(None, [0], 2), replication.replicated(1, [0], 1)),
        (held.all_held([1, 2]), held.all_held([1, 0])),
        (fragments.ascending([1, 2, 9]), fragments.ascending([1, 2, 2])),
    ],
)
def test_predicates(holds: bool, breaks: bool) -> None:
    assert holds
    assert not breaks


BOTH = (Fragment(0b11, 1),)
CLOSED = World(Status.CLOSED, BOTH, last=1, version=2)
WRITER = Client(Role.CLOSED, version=2, fragments=BOTH, pushed=1, lac=1, acks=(0b11,))
IDLE = Client(acks=(0,))
FULL, EMPTY = ActorView(((1, 1),)), ActorView()


def verdict(options: Options, world: World, clients: list[Client], parts: list[ActorView]) -> str:
    safety = Safety(options)
    seen = [
        safety.of_world(world),
        *map(safety.of_client, clients),
        *map(safety.of_part, parts),
    ]
    number = safety.broken(seen)
    return safety.names[number - 1] if number else "safe"


@pytest.mark.parametrize(
    ("options", "world", "writer", "parts", "expected"),
    [
        (Options(), CLOSED, WRITER, [FULL, FULL], "safe"),
        (Options(), CLOSED, WRITER, [EMPTY, EMPTY], "safe"),
        (Options(crashes=0), CLOSED, WRITER, [EMPTY, EMPTY], replication.NAME),
        (Options(crashes=0, ack_quorum=2), CLOSED, WRITER, [FULL, EMPTY], replication.NAME),
        (Options(ack_quorum=2), CLOSED, WRITER, [FULL, EMPTY], "safe"),
        (Options(ack_quorum=2), CLOSED, WRITER, [EMPTY, EMPTY], held.NAME),
        (Options(), CLOSED._replace(last=0), WRITER, [FULL, FULL], divergence.NAME),
        (Options(), CLOSED, WRITER, [ActorView(((2, 1),)), FULL], order.NAME),
        (Options(), CLOSED._replace(last=2), WRITER, [FULL, FULL], TYPES),
        (
            Options(),
            CLOSED,
            WRITER._replace(fragments=(Fragment(0b11, 2), Fragment(0b11, 1))),
            [FULL, FULL],
            fragments.NAME,
        ),
    ],
)
def test_verdicts(
    options: Options, world: World, writer: Client, parts: list[ActorView], expected: str
) -> None:
    assert verdict(options, world, [writer, IDLE], parts) == expected
    assert verdict(options, world, [IDLE, writer], parts[::-1]) == expected


def test_a_withdrawn_writer_still_knows_what_was_acknowledged() -> None:
    withdrawn = replaced_role(Role.WITHDRAWN)
    assert verdict(Options(), CLOSED._replace(last=0), [withdrawn, IDLE], [FULL, FULL]) == (
        divergence.NAME
    )


def replaced_role(role: Role) -> Client:
    return WRITER._replace(role=role)


@pytest.mark.parametrize(
    "client",
    [
        WRITER._replace(lac=2),
        WRITER._replace(acks=()),
        WRITER._replace(fragments=()),
        WRITER._replace(has=0b100),
        WRITER._replace(fragments=(Fragment(0b111, 1),)),
    ],
)
def test_values_out_of_their_domain_are_noticed(client: Client) -> None:
    assert verdict(replaced(Options(), sends=1), CLOSED, [client, IDLE], [FULL, FULL]) == TYPES
