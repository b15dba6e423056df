"""Roles and rates: what they mean, how they are written, and how a bucket empties."""

from __future__ import annotations

import pytest

from bkbox.base.logs.refusals import Refusals
from bkbox.base.token_bucket import TokenBucket
from bkbox.frontend.access.authorization import Authorizer, need_of_v2, need_of_v3
from bkbox.frontend.loop.connection import FAST_ADDS, FAST_READS, FAST_RECOVERIES
from bkbox.frontend.request_router import RequestRouter
from bkbox.security.rates import Buckets
from bkbox.security.roles import (
    ALL,
    FREE,
    Grant,
    Grants,
    Need,
    parse_rate,
    parse_role,
)
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from tests.harness import raw
from tests.harness.raw3 import (
    ADD,
    EUA,
    FENCE,
    FORCE,
    INFO,
    LIST,
    READ,
    READ_LAC,
    WRITE_LAC,
    add_part,
    answer_of,
    lac_packet,
    read_part,
    request,
)

LAC = [(1, 6), (2, 0), (3, b""), (4, lac_packet(6, 0))]
OPERATIONS = {
    "add": (request(ADD, 1, add_part(1, 0)), Need.ADD),
    "recovery add": (request(ADD, 1, add_part(1, 0, recovery=True)), Need.RECOVER),
    "deferred add": (request(ADD, 1, add_part(1, 0, deferred=True)), Need.ADD),
    "read": (request(READ, 1, read_part(1)), Need.READ),
    "fence": (request(READ, 1, read_part(1, flag=FENCE)), Need.RECOVER),
    "poll": (request(READ, 1, read_part(1, previous=1)), Need.READ),
    "write lac": (request(WRITE_LAC, 1, LAC), Need.ADD),
    "read lac": (request(READ_LAC, 1, [(1, 7)]), Need.READ),
    "force": (request(FORCE, 1, [(1, 8)]), Need.ADD),
    "list": (request(LIST, 1, [(1, 9)]), Need.READ),
    "info": (request(INFO, 1, [(1, 3)]), Need.READ),
}
OPERATIONS_2 = {
    "add": (raw.add_frame(1, 0, b""), Need.ADD),
    "recovery add": (raw.add_frame(1, 0, b"", raw.RECOVERY), Need.RECOVER),
    "read": (raw.read_frame(1, 0), Need.READ),
    "fence": (raw.read_frame(1, 0, raw.FENCE), Need.RECOVER),
    "batch read": (raw.batch_frame(1, 0, 1), Need.READ),
    "fencing batch read": (raw.batch_frame(1, 0, 1, flags=raw.FENCE), Need.RECOVER),
}


class Nowhere:
    """A router that nothing may get to. ``waits``: how often a request has to wait first."""

    waits = 0

    def route(self, _ledger: int, _purpose: object, _connection: int) -> Code | None:
        self.waits -= 1
        return None if self.waits >= 0 else Code.ENOLEDGER

    def space(self) -> object:
        raise AssertionError


def guarded(needs: Need, rate: int = 0, router: Nowhere | None = None) -> RequestRouter:
    bucket = TokenBucket(rate, is_full=True) if rate else None
    authorizer = Authorizer(
        "who", "token", "peer", Grant(needs), bucket, Refusals(lambda: 0.0), lambda: 0.0
    )
    return RequestRouter(router or Nowhere(), authorizer)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_each_operation_of_version_3_needs(name: str) -> None:
    frame, need = OPERATIONS[name]
    found = v3.decode_request(frame[4:])
    assert need_of_v3(found) is need  # type: ignore[arg-type]
    answer = guarded(ALL & ~need).dispatch(memoryview(frame)[4:])
    assert isinstance(answer, bytes)
    assert answer_of(answer[4:]).status == EUA
    if name != "info":
        answer = guarded(need).dispatch(memoryview(frame)[4:])
        assert isinstance(answer, bytes)
        assert answer_of(answer[4:]).status != EUA


@pytest.mark.parametrize("name", OPERATIONS_2)
def test_what_each_operation_of_version_2_needs(name: str) -> None:
    frame, need = OPERATIONS_2[name]
    header = v2.peek_request(frame[4:])
    assert isinstance(header, v2.Header)
    assert need_of_v2(header) is need
    for needs, refused in ((ALL & ~need, True), (need, False)):
        answer = guarded(needs).dispatch(memoryview(frame)[4:])
        assert isinstance(answer, bytes)
        code = v2.decode_response(answer[4:]).code  # type: ignore[union-attr]
        assert (code is Code.EUA) is refused


def test_what_needs_no_look() -> None:
    def plain(grant: Grant, bucket: TokenBucket | None = None) -> int:
        return Authorizer(
            "who", "token", "peer", grant, bucket, Refusals(lambda: 0.0), lambda: 0.0
        ).fast_paths

    assert plain(FREE) == FAST_ADDS | FAST_READS | FAST_RECOVERIES
    assert plain(Grant(Need.READ)) == FAST_READS
    assert plain(Grant(Need.ADD)) == FAST_ADDS
    assert plain(Grant(Need.RECOVER)) == FAST_RECOVERIES
    assert plain(FREE, TokenBucket(5, is_full=True)) == 0


def test_roles_as_they_are_written() -> None:
    assert parse_role("a=read") == ("a", Need.READ)
    assert parse_role("CN=b, O=x = replication , read") == ("CN=b, O=x", Need.READ | Need.RECOVER)
    for wrong in ("a", "=read", "a=", "a=reed", "a=read,", "x" * 300 + "=read"):
        with pytest.raises(ValueError, match=r"form|roles"):
            parse_role(wrong)
    assert parse_rate("a=10") == ("a", 10)
    for wrong in ("a", "a=0", "a=-1", "a=1.5", "a=many", "a=" + "9" * 30, "=5"):
        with pytest.raises(ValueError, match=r"form|number"):
            parse_rate(wrong)


def test_who_has_what() -> None:
    assert Grants().of("anybody") == Grant(ALL)
    grants = Grants([("a", Need.READ)], [("a", 5)])
    assert grants.of("a") == Grant(Need.READ, 5)
    assert grants.of("b") == Grant(Need(0), 0)
    grants = Grants([("a", ALL), ("*", Need.READ)], [("*", 7)])
    assert grants.of("a") == Grant(ALL, 7)
    assert grants.of("b") == Grant(Need.READ, 7)


def test_connections_of_one_identity_share_a_bucket() -> None:
    buckets = Buckets()
    one, other = buckets.open("a", 3), buckets.open("a", 3)
    assert one is other
    assert buckets.open("b", 3) is not one
    buckets.close("a")
    assert buckets.open("a", 3) is one
    buckets.close("a")
    buckets.close("a")
    assert buckets.open("a", 3) is not one


def test_requests_beyond_the_rate_are_too_many() -> None:
    intake = guarded(ALL, rate=2)
    frame = memoryview(raw.read_frame(1, 0))[4:]
    codes = [v2.decode_response(intake.dispatch(frame)[4:]).code for _ in range(3)]  # type: ignore[index,union-attr]
    assert codes == [Code.ENOLEDGER, Code.ENOLEDGER, Code.ETOOMANYREQUESTS]


def test_a_request_that_has_to_wait_is_paid_for_once() -> None:
    router = Nowhere()
    intake = guarded(ALL, rate=2, router=router)
    frame = memoryview(raw.read_frame(1, 0))[4:]
    for _ in range(2):
        router.waits = 5
        assert [intake.dispatch(frame) for _ in range(5)] == [None] * 5
        answer = intake.dispatch(frame)
        assert isinstance(answer, bytes)
        assert v2.decode_response(answer[4:]).code is Code.ENOLEDGER  # type: ignore[union-attr]
    answer = intake.dispatch(frame)
    assert isinstance(answer, bytes)
    assert v2.decode_response(answer[4:]).code is Code.ETOOMANYREQUESTS  # type: ignore[union-attr]


def test_kinds_of_identities() -> None:
    lines = [("a", ALL), ("certificate/b", ALL), ("sasl/c", ALL), ("*", Need.READ)]
    some = ("token/a", "sasl/a", "certificate/a", "certificate/b", "token/b", "sasl/c", "token/c")

    def may_add(*users: str) -> set[str]:
        grants = Grants(lines, (), users)
        return {each for each in some if Need.ADD in grants.of(each).needs}

    assert may_add("a", "b", "c") == {"token/a", "sasl/a", "certificate/b", "sasl/c"}
    assert may_add() == {"token/a", "sasl/a", "certificate/a", "certificate/b", "sasl/c"}


def test_a_user_has_one_bound_by_whatever_way_it_comes_in() -> None:
    grants = Grants((), [("a", 5), ("token/b", 6), ("*", 7)], ("a", "b"))
    assert grants.counts_as("token/a") == grants.counts_as("sasl/a") == "a"
    assert grants.counts_as("token/b") == "token/b"
    assert grants.counts_as("sasl/b") == "sasl/b"
    assert [grants.of(f"{kind}/b").requests_per_second for kind in ("token", "sasl")] == [6, 7]
