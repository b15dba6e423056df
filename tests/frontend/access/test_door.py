"""Connections before they are let in: every operation, both versions, before, during and after the handshake; TLS by
both ways in, and what somebody in between could try."""

from __future__ import annotations

import asyncio
import datetime
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from bkbox.base.limits import FRONTEND_BUFFERED_BYTES_MAX
from bkbox.base.redaction import Secrets
from bkbox.errors import AuthenticationError
from bkbox.frontend.access import handshake_pool as door_module
from bkbox.ipc.messages.frontend import SetAccessPolicy
from bkbox.security import digest_md5, tokens
from tests.frontend.inprocess import FRAME_BYTES_MAX, InProcessBookie, serving
from tests.harness import raw
from tests.harness.raw import RawClient
from tests.harness.raw3 import (
    ADD,
    AUTH,
    BATCH_READ,
    EBADREQ,
    EOK,
    ETOOMANY,
    EUA,
    RANGE_ADD,
    RANGE_READ,
    READ,
    START_TLS,
    add_part,
    answer_of,
    read_part,
    request,
)
from tests.harness.waiting import wait_for
from tests.security.certificates import Authority
from tests.security.secured import CLIENT_NONCE, USERS, Visitor, auth_part, client_tls, order
from tests.security.test_roles import OPERATIONS, OPERATIONS_2

Story = Callable[[InProcessBookie], None]


def run(folder: Path, admit: SetAccessPolicy, story: Story, **bounds: Any) -> None:
    """A story of blocking clients, with a bookie that serves meanwhile."""

    async def told() -> None:
        async with serving(folder, admit=admit, **bounds) as bookie:
            await asyncio.to_thread(story, bookie)

    asyncio.run(told())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


TOKEN = order(plugins=("token",))
SASL = order(plugins=("sasl",))
BOTH = order(plugins=("sasl", "token"))


# ---- authentication -----------------------------------------------------------------------------


def test_nothing_is_done_before_authentication(tmp_path: Path) -> None:
    def story(bookie: InProcessBookie) -> None:
        for name, (frame, _) in OPERATIONS.items():
            with Visitor(bookie.port) as client:
                client.send(frame)
                answer = client.answer3()
                assert (answer.status, answer.part) == (EUA, None), name
                # It stays as it was, and may still say who it is.
                assert client.log_in_with_token() == EOK
        for name, (frame, _) in OPERATIONS_2.items():
            with RawClient(bookie.port) as old:
                old.send(frame)
                if "batch" in name:
                    with pytest.raises(EOFError):
                        old.frame()
                else:
                    assert old.answer().code == raw.EUA, name
        with Visitor(bookie.port) as client:
            assert client.log_in_with_token() == EOK
            assert client.read3(1).status == 402, "ledger 1 was created by somebody unknown"

    run(tmp_path, TOKEN, story)


@pytest.mark.parametrize("operation", [RANGE_READ, RANGE_ADD, BATCH_READ, START_TLS])
def test_other_operations_before_authentication(tmp_path: Path, operation: int) -> None:
    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client:
            expected = EBADREQ if operation == START_TLS else EUA
            client.send(request(operation, 1))
            assert answer_of(client.frame()).status == expected

    run(tmp_path, TOKEN, story)


def test_in_the_middle_of_an_exchange_nothing_is_done_either(tmp_path: Path) -> None:
    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client:
            applicant = tokens.Client("bookkeeper", USERS["bookkeeper"], "c" * 32)
            _, _, challenge = client.auth(applicant.plugin, applicant.begin())
            assert client.ask(ADD, add_part(1, 0)).status == EUA
            client.send(raw.add_frame(1, 0, b"x"))
            assert client.answer().code == raw.EUA
            proof = applicant.step(challenge)
            assert proof is not None
            # It has spoken version 2, so it goes on in it.
        with Visitor(bookie.port) as client:
            assert client.log_in_with_token() == EOK
            assert client.add3(1, 0) == EOK
            assert client.read3(1, 0).status == EOK

    run(tmp_path, TOKEN, story)


@pytest.mark.parametrize("how", ["sasl", "token"])
def test_who_has_proved_it_may_do_everything(tmp_path: Path, how: str) -> None:
    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client:
            log_in = client.log_in_with_sasl if how == "sasl" else client.log_in_with_token
            assert log_in() == EOK
            # Java's client sends one more, which is answered as where there is nothing to prove.
            status, plugin, payload = client.auth("sasl", b"")
            assert (status, plugin, payload) == (EOK, "AuthDisabledPlugin", b"")
            assert client.add3(1, 0) == EOK
            client.send(raw.read_frame(1, 0))
            assert client.answer().code == raw.EOK

    run(tmp_path, BOTH, story)


def test_authentication_in_version_2(tmp_path: Path) -> None:
    def auth_frame(plugin: bytes, payload: bytes) -> bytes:
        message = b"\x0a" + bytes([len(plugin)]) + plugin
        message += b"\x12" + _varint(len(payload)) + payload
        body = b"\x02\x03\0\0" + message
        return len(body).to_bytes(4, "big") + body

    def story(bookie: InProcessBookie) -> None:
        with RawClient(bookie.port) as old:
            applicant = digest_md5.Client("bookkeeper", USERS["bookkeeper"], "c" * 32)
            payload: bytes | None = applicant.begin()
            while payload is not None:
                old.send(auth_frame(b"sasl", payload))
                body = old.frame()
                assert body[:4] == b"\x02\x03\0\0"
                assert body[4:10] == b"\x0a\x04sasl"
                size, at = (
                    (body[11], 12) if body[11] < 128 else ((body[11] & 127) + 128 * body[12], 13)
                )
                payload = applicant.step(body[at : at + size])
            assert old.add(1, 0, b"x") == raw.EOK
        with RawClient(bookie.port) as old:
            old.send(auth_frame(b"other", b""))
            with pytest.raises(EOFError):
                old.frame()

    run(tmp_path, SASL, story)


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


def test_what_is_sent_right_behind_the_proof_is_not_lost(tmp_path: Path) -> None:
    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client:
            applicant = tokens.Client("bookkeeper", USERS["bookkeeper"], "c" * 32)
            _, _, challenge = client.auth(applicant.plugin, applicant.begin())
            proof = applicant.step(challenge)
            assert proof is not None
            behind = b"".join(request(ADD, 10 + n, add_part(1, n)) for n in range(200))
            client.send(request(AUTH, 9, auth_part(applicant.plugin, proof)) + behind)
            assert client.answer3().status == EOK
            assert [client.answer3().status for _ in range(200)] == [EOK] * 200

    run(tmp_path, TOKEN, story)


@pytest.mark.parametrize("how", ["sasl", "token"])
def test_a_wrong_secret_is_refused_and_ends_the_connection(tmp_path: Path, how: str) -> None:
    def story(bookie: InProcessBookie) -> None:
        for user, secret in (("bookkeeper", "wrong"), ("nobody", "x" * 20)):
            with Visitor(bookie.port) as client:
                log_in = client.log_in_with_sasl if how == "sasl" else client.log_in_with_token
                assert log_in(user, secret) == EUA
                assert client.is_closed()

    run(tmp_path, BOTH, story)


def test_plugins_that_are_not_offered(tmp_path: Path) -> None:
    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client:
            for plugin in ("AuthDisabledPlugin", "bkbox-token", "", "x" * 200):
                assert client.auth(plugin, b"")[0] == EUA
            client.send(request(AUTH, 99))
            assert client.answer3().status == EUA
            assert client.ask(READ, read_part(1)).status == EUA
            assert client.log_in_with_sasl() == EOK
        with Visitor(bookie.port) as client:
            assert client.auth("sasl", b"")[0] == EOK
            assert client.auth("bkbox-token", b"")[0] == EUA
            assert client.is_closed()

    run(tmp_path, SASL, story)


def test_connections_share_nothing(tmp_path: Path) -> None:
    """A recorded DIGEST-MD5 exchange is worth nothing on the next connection."""

    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as good:
            applicant = digest_md5.Client("bookkeeper", USERS["bookkeeper"], "c" * 32)
            _, _, challenge = good.auth("sasl", applicant.begin())
            answer = applicant.step(challenge)
            assert answer is not None
            assert good.auth("sasl", answer)[0] == EOK
            assert good.add3(1, 0) == EOK
            with Visitor(bookie.port) as bad:
                assert bad.auth("sasl", b"")[0] == EOK
                assert bad.auth("sasl", answer)[0] == EUA
                assert bad.is_closed()
            with Visitor(bookie.port) as bad:
                assert bad.auth("sasl", answer)[0] == EUA
            assert good.add3(1, 1) == EOK

    run(tmp_path, SASL, story)


def test_who_takes_too_long_and_who_says_too_much(tmp_path: Path) -> None:
    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as inside:
            assert inside.log_in_with_token() == EOK
            began = time.monotonic()
            with Visitor(bookie.port) as silent, Visitor(bookie.port) as slow:
                slow.auth(tokens.PLUGIN, tokens.Client("a", "b", "c" * 32).begin())
                assert silent.is_closed()
                assert slow.is_closed()
                assert time.monotonic() - began > 0.4
            with Visitor(bookie.port) as loud:
                loud.send(request(READ, 1, read_part(1)) * 70)
                assert loud.is_closed()
            with Visitor(bookie.port) as large:
                large.send(raw.add_frame(1, 0, bytes(100_000)))
                assert large.is_closed()
            assert inside.add3(1, 0) == EOK

    run(tmp_path, TOKEN, story, handshake_timeout_s=0.5)


def test_many_at_the_door_make_the_oldest_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "UNAUTHENTICATED_MAX", 10)

    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as inside:
            assert inside.log_in_with_token() == EOK
            crowd = [Visitor(bookie.port) for _ in range(30)]
            with Visitor(bookie.port) as late:
                assert late.log_in_with_token() == EOK
                assert late.add3(2, 0) == EOK
            assert crowd[0].is_closed()
            assert inside.add3(1, 0) == EOK
            for client in crowd:
                client.close()

    run(tmp_path, TOKEN, story)


# ---- roles --------------------------------------------------------------------------------------


def test_roles_of_connections(tmp_path: Path) -> None:
    roles = ("bookkeeper=write", "reader=read", "copier=replication")

    def story(bookie: InProcessBookie) -> None:
        def inside(user: str) -> Visitor:
            client = Visitor(bookie.port)
            assert client.log_in_with_token(user) == EOK
            return client

        with inside("bookkeeper") as writer, inside("reader") as reader, inside("copier") as copier:
            assert writer.add3(1, 0) == EOK
            assert writer.add3(1, 1) == EOK
            assert reader.read3(1, 0).status == EOK
            assert copier.read3(1, 0).status == EOK
            for client in (reader, copier):
                assert client.add3(1, 2) == EUA
                client.send(raw.add_frame(1, 2, b"x"))
                assert client.answer().code == raw.EUA
        with inside("reader") as reader, inside("copier") as copier:
            assert reader.add3(1, 2, recovery=True) == EUA
            assert reader.fence3(1).status == EUA
            assert copier.add3(1, 2, recovery=True) == EOK
            assert copier.fence3(1).status == EOK
        with inside("reader") as reader:
            assert reader.read3(1, 2).status == EOK

    run(tmp_path, order(plugins=("token",), roles=roles), story)


def test_somebody_who_is_known_and_has_no_role(tmp_path: Path) -> None:
    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client:
            assert client.log_in_with_token("reader") == EOK
            assert client.read3(1).status == EUA

    run(tmp_path, order(plugins=("token",), roles=("bookkeeper=write",)), story)


def test_a_bound_of_requests(tmp_path: Path) -> None:
    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client, Visitor(bookie.port) as again:
            assert client.log_in_with_token() == EOK
            assert again.log_in_with_token() == EOK
            assert client.add3(1, 0) == EOK
            began = time.monotonic()
            codes = [each.read3(1, 0).status for _ in range(60) for each in (client, again)]
            lasted_s = time.monotonic() - began
            assert set(codes) == {EOK, ETOOMANY}
            assert codes.count(EOK) <= 5 * (1 + lasted_s) + 1

    admit = order(plugins=("token",), rates=("bookkeeper=5",))
    run(tmp_path, admit, story)


@pytest.mark.parametrize("way", ["token", "sasl"])
def test_a_secret_that_was_typed_as_the_name_is_not_in_the_log(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, way: str
) -> None:
    typed = USERS["reader"]

    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client:
            log_in = client.log_in_with_token if way == "token" else client.log_in_with_sasl
            assert log_in(typed, "whatever it may be") == EUA

    run(tmp_path, order(plugins=("token", "sasl")), story)
    assert "the user or the" in "\n".join(caplog.messages)
    assert typed not in "\n".join(caplog.messages)


def test_who_came_in_with_a_secret_that_was_changed_has_to_go(tmp_path: Path) -> None:
    async def told() -> None:
        async with serving(tmp_path, admit=TOKEN) as bookie:
            rotated, other, at_the_door = (Visitor(bookie.port) for _ in range(3))
            assert await asyncio.to_thread(rotated.log_in_with_token, "reader") == EOK
            assert await asyncio.to_thread(other.log_in_with_token) == EOK
            applicant = tokens.Client("copier", USERS["copier"], CLIENT_NONCE)
            step = await asyncio.to_thread(at_the_door.auth, tokens.PLUGIN, applicant.begin())
            users = USERS | {"reader": "a new secret", "copier": "another new one"}
            bookie.control.send(order(plugins=("token",), users=users))
            await bookie.stats()
            assert await asyncio.to_thread(rotated.is_closed)
            assert await asyncio.to_thread(other.add3, 1, 0) == EOK
            proof = applicant.step(step[2])
            assert proof is not None
            with suppress(OSError):
                await asyncio.to_thread(at_the_door.auth, tokens.PLUGIN, proof)
            assert await asyncio.to_thread(at_the_door.is_closed), "what it proved is old"
            again = Visitor(bookie.port)
            assert await asyncio.to_thread(again.log_in_with_token, "reader", "a new secret") == EOK
            for each in (rotated, other, at_the_door, again):
                each.close()

    asyncio.run(told())


@pytest.mark.parametrize("plugins", [("certificate",), ()])
def test_who_came_in_by_an_authority_that_counts_no_more_has_to_go(
    tmp_path: Path, authority: Authority, plugins: tuple[str, ...]
) -> None:
    bookie_pair, own = authority.issue("bookie"), authority.issue("writer")
    other = Authority(tmp_path / "other")
    both = Authority(tmp_path / "both")
    both.file.write_text(authority.file.read_text() + other.file.read_text())

    def admit(trusted: Authority) -> SetAccessPolicy:
        return order(trusted, bookie_pair, tls="required", clients="required", plugins=plugins)

    async def told() -> None:
        async with serving(tmp_path, admit=admit(authority)) as bookie:
            client = Visitor(bookie.port)
            await asyncio.to_thread(client.begin_tls, client_tls(authority, own))
            assert await asyncio.to_thread(client.add3, 1, 0) == EOK
            bookie.control.send(admit(both))
            await bookie.stats()
            assert await asyncio.to_thread(client.add3, 1, 1) == EOK, "it is trusted as before"
            bookie.control.send(admit(other))
            await bookie.stats()
            assert await asyncio.to_thread(client.is_closed)
            client.close()

    asyncio.run(told())


def test_a_certificate_and_a_user_of_one_name_are_two(tmp_path: Path, authority: Authority) -> None:
    """A certificate says of itself what it is called: it gets nothing that a user of that name has."""
    admit = order(
        authority,
        authority.issue("bookie"),
        tls="required",
        clients="asked",
        plugins=("token", "certificate"),
        roles=("bookkeeper=write", "certificate/copier=write"),
    )

    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as user:
            user.begin_tls(client_tls(authority))
            assert user.log_in_with_token() == EOK
            assert user.add3(1, 0) == EOK
        for name, code in (("bookkeeper", EUA), ("copier", EOK)):
            with Visitor(bookie.port) as client:
                client.begin_tls(client_tls(authority, authority.issue(name)))
                assert client.add3(1, 1) == code, name

    run(tmp_path, admit, story)


def test_a_change_of_users_and_roles_holds_at_once(tmp_path: Path) -> None:
    async def told() -> None:
        async with serving(tmp_path, admit=TOKEN) as bookie:
            writer, other = Visitor(bookie.port), Visitor(bookie.port)
            assert await asyncio.to_thread(writer.log_in_with_token) == EOK
            assert await asyncio.to_thread(other.log_in_with_token, "reader") == EOK
            assert await asyncio.to_thread(writer.add3, 1, 0) == EOK
            users = {"bookkeeper": USERS["bookkeeper"]}
            admit = order(plugins=("token",), users=users, roles=("bookkeeper=read",))
            bookie.control.send(admit)
            await bookie.stats()
            assert await asyncio.to_thread(writer.add3, 1, 1) == EUA
            assert (await asyncio.to_thread(writer.read3, 1, 0)).status == EOK
            assert await asyncio.to_thread(other.is_closed)
            writer.close()
            other.close()

    asyncio.run(told())


# ---- TLS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["start", "direct"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_ways_into_tls(
    tmp_path: Path, authority: Authority, way: str, version: ssl.TLSVersion
) -> None:
    admit = order(pair=authority.issue("bookie"), tls="required")
    context = client_tls(authority, version=version)

    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client:
            (client.start_tls if way == "start" else client.begin_tls)(context)
            assert client.add3(1, 0) == EOK
            assert client.ask(START_TLS, []).status == EBADREQ, "TLS within TLS"
            payload = bytes(range(256)) * 12_000
            assert client.add3(1, 1, payload) == EOK
            assert payload in bytes(client.read3(1, 1).part[4])  # type: ignore[index,arg-type]
            frames = [request(ADD, n, add_part(1, n, b"y" * 3000)) for n in range(2, 400)]
            client.send(b"".join(frames))
            assert {client.answer3().status for _ in frames} == {EOK}
            client.send(raw.read_frame(1, 0))
            assert client.answer().code == raw.EOK

    run(tmp_path, admit, story)


def test_many_large_answers_through_tls(tmp_path: Path, authority: Authority) -> None:
    """More than the socket takes at once, to a client that reads late; and everything comes in order."""
    admit = order(pair=authority.issue("bookie"), tls="offered")

    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client:
            client.begin_tls(client_tls(authority))
            for entry in range(30):
                assert client.add3(1, entry, bytes([entry]) * 700_000) == EOK
            client.send(b"".join(raw.read_frame(1, n % 30) for n in range(40)))
            time.sleep(0.5)
            for n in range(40):
                answer = client.answer()
                assert answer.code == raw.EOK
                assert raw.payload_of(answer.body) == bytes([n % 30]) * 700_000
            client.send(raw.read_frame(1, 0))
            assert client.answer().code == raw.EOK

    run(tmp_path, admit, story)


def test_where_tls_is_offered_plain_clients_go_on(tmp_path: Path, authority: Authority) -> None:
    admit = order(pair=authority.issue("bookie"), tls="offered")

    def story(bookie: InProcessBookie) -> None:
        with RawClient(bookie.port) as old, Visitor(bookie.port) as new:
            assert old.add(1, 0, b"x") == raw.EOK
            assert new.add3(1, 1) == EOK
            assert new.ask(START_TLS, []).status == EBADREQ, "too late"
        with Visitor(bookie.port) as client:  # byte by byte
            for byte in request(ADD, 1, add_part(1, 2)):
                client.send(bytes([byte]))
            assert client.answer3().status == EOK
        with Visitor(bookie.port) as client:
            for byte in request(START_TLS, 1, []):
                client.send(bytes([byte]))
            assert client.answer3().status == EOK
            client.begin_tls(client_tls(authority))
            assert client.add3(1, 3) == EOK

    run(tmp_path, admit, story)


def test_large_frames_that_begin_at_the_door_and_find_no_room(
    tmp_path: Path, authority: Authority
) -> None:
    admit = order(pair=authority.issue("bookie"), tls="offered")
    begun = struct.pack(">i", FRAME_BYTES_MAX - 4) + b"\2\1\0\0" + bytes(1000)

    def story(bookie: InProcessBookie) -> None:
        with ExitStack() as stack, RawClient(bookie.port) as good:
            assert good.add(1, 0, b"x") == raw.EOK
            for _ in range(FRONTEND_BUFFERED_BYTES_MAX // FRAME_BYTES_MAX + 5):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", bookie.port)))
                with suppress(ConnectionError):
                    sock.sendall(begun)
            wait_for(lambda: good.add(1, 1, b"x") == raw.EOK, "the one who was here before")

    run(tmp_path, admit, story)


def test_where_tls_is_required_plain_clients_are_refused(
    tmp_path: Path, authority: Authority
) -> None:
    admit = order(pair=authority.issue("bookie"), tls="required", plugins=("token",))

    def story(bookie: InProcessBookie) -> None:
        for frame, _ in OPERATIONS.values():
            with Visitor(bookie.port) as client:
                client.send(frame)
                assert client.answer3().status == EUA
        with Visitor(bookie.port) as client:
            assert client.log_in_with_token() == EUA, "a proof without TLS"
        with RawClient(bookie.port) as old:
            assert old.add(1, 0, b"x") == raw.EUA
        with Visitor(bookie.port) as client:
            client.start_tls(client_tls(authority))
            assert client.ask(READ, read_part(1)).status == EUA
            assert client.log_in_with_token() == EOK
            assert client.read3(1).status == 402

    run(tmp_path, admit, story)


def test_what_may_come_between_start_tls_and_tls(tmp_path: Path, authority: Authority) -> None:
    """Java's client sends its first AUTH right behind START_TLS, in the clear; nothing else may."""
    admit = order(pair=authority.issue("bookie"), tls="required", plugins=("sasl",))
    start = request(START_TLS, 1, [])
    first = request(AUTH, 2, auth_part("sasl", b""))

    def story(bookie: InProcessBookie) -> None:
        for pause in (0.0, 0.1):
            with Visitor(bookie.port) as client:
                client.send(start)
                time.sleep(pause)
                client.send(first)
                assert client.answer3().status == EOK
                client.begin_tls(client_tls(authority))
                held = client.answer3()
                assert (held.txn, held.status) == (2, EOK)
                applicant = digest_md5.Client("bookkeeper", USERS["bookkeeper"], "c" * 32)
                applicant.begin()
                assert held.part is not None
                answer = applicant.step(bytes(held.part[2]))  # type: ignore[arg-type]
                assert answer is not None
                assert client.auth("sasl", answer)[0] == EOK
                assert client.add3(1, 0) == EOK
        for frame in (
            request(ADD, 2, add_part(1, 1)),
            raw.read_frame(1, 0),
            request(START_TLS, 2, []),
            b"\0\0\0\0",
        ):
            with Visitor(bookie.port) as client:
                client.send(start + frame)
                assert client.is_closed()
        with Visitor(bookie.port) as client:
            client.send(request(READ, 1, read_part(1)))
            assert client.answer3().status == EUA
            client.send(start)
            assert client.answer3().status == EBADREQ, "START_TLS is the first thing, or none"

    run(tmp_path, admit, story)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1:DeprecationWarning")
def test_old_versions_and_broken_handshakes(tmp_path: Path, authority: Authority) -> None:
    admit = order(pair=authority.issue("bookie"), tls="required")

    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client:
            context = client_tls(authority, version=ssl.TLSVersion.TLSv1_1)
            context.set_ciphers("ALL:@SECLEVEL=0")
            with pytest.raises((ssl.SSLError, ConnectionError)):
                client.begin_tls(context)
        for garbage in (b"\x16\x03\x01\x00\x05hello", b"\x16" + bytes(200), b"\x16\xff" * 5000):
            with Visitor(bookie.port) as client:
                client.send(garbage)
                assert client.is_closed()
        with Visitor(bookie.port) as client:
            client.begin_tls(client_tls(authority))
            assert client.add3(1, 0) == EOK
            with socket.socket(fileno=os.dup(client.sock.fileno())) as under:
                under.sendall(raw.read_frame(1, 0))  # in the clear, behind TLS's back
            assert client.is_closed()

    run(tmp_path, admit, story, handshake_timeout_s=1.0)


@pytest.mark.parametrize("clients", ["asked", "required"])
def test_certificates_of_clients(tmp_path: Path, authority: Authority, clients: str) -> None:
    admit = order(
        authority,
        authority.issue("bookie"),
        tls="required",
        clients=clients,
        plugins=("certificate",),
        roles=("alice=read", "writers=write"),
    )
    foreign = Authority(tmp_path / "foreign", "foreign")
    expired = authority.issue("alice", lasts=datetime.timedelta(days=-1), file="expired")

    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client:
            client.start_tls(client_tls(authority, authority.issue("alice")))
            assert client.add3(1, 0) == EUA
            assert client.read3(1).status == 402
        with Visitor(bookie.port) as client:
            pair = authority.issue("bob", unit="0:writers,others;1:cluster")
            client.begin_tls(client_tls(authority, pair))
            assert client.add3(1, 0) == EOK
        for pair in (foreign.issue("alice", file="foreign"), expired):
            with Visitor(bookie.port) as client:
                context = client_tls(authority, pair, version=ssl.TLSVersion.TLSv1_2)
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    client.begin_tls(context)
        with Visitor(bookie.port) as client:
            context = client_tls(authority, version=ssl.TLSVersion.TLSv1_2)
            if clients == "required":
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    client.begin_tls(context)
            else:
                client.begin_tls(context)
                assert client.ask(READ, read_part(1)).status == EUA

    run(tmp_path, admit, story)


def test_a_new_certificate_needs_no_restart(tmp_path: Path, authority: Authority) -> None:
    later = Authority(tmp_path / "later", "later")

    async def told() -> None:
        first = order(pair=authority.issue("bookie"), tls="required")
        async with serving(tmp_path, admit=first) as bookie:
            before = Visitor(bookie.port)
            await asyncio.to_thread(before.start_tls, client_tls(authority))
            bookie.control.send(order(pair=later.issue("bookie"), tls="required"))
            await bookie.stats()
            assert await asyncio.to_thread(before.add3, 1, 0) == EOK, "who is inside stays"
            after = Visitor(bookie.port)
            await asyncio.to_thread(after.start_tls, client_tls(later))
            assert (await asyncio.to_thread(after.read3, 1, 0)).status == EOK
            late = Visitor(bookie.port)
            with pytest.raises(ssl.SSLError):
                await asyncio.to_thread(late.start_tls, client_tls(authority))
            for client in (before, after, late):
                client.close()

    asyncio.run(told())


def test_a_flood_of_handshakes(tmp_path: Path, authority: Authority) -> None:
    """They wait for each other (test_handshake_pool.py says for how long), and who is inside for none of them."""
    admit = order(pair=authority.issue("bookie"), tls="offered")
    context = client_tls(authority)

    def hello() -> bytes:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        return outgoing.read()

    def story(bookie: InProcessBookie) -> None:
        greeting = hello()
        with RawClient(bookie.port) as inside:
            assert inside.add(1, 0, b"x") == raw.EOK
            crowd = []
            for _ in range(200):
                client = Visitor(bookie.port)
                client.send(greeting)
                crowd.append(client)
            took = []
            for entry in range(1, 100):
                began = time.monotonic()
                assert inside.add(1, entry, b"x") == raw.EOK
                took.append(time.monotonic() - began)
            assert sorted(took)[50] < 0.5
            for client in crowd:
                client.close()
            with Visitor(bookie.port) as late:
                late.begin_tls(context)
                assert late.add3(2, 0) == EOK

    run(tmp_path, admit, story)


def test_the_error_says_who_it_was(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client:
            assert client.log_in_with_token("reader", "not the secret of it") == EUA
        with Visitor(bookie.port) as client:
            client.send(request(ADD, 1, add_part(1, 0)))
            assert client.answer3().status == EUA

    run(tmp_path, TOKEN, story)
    said = "\n".join(caplog.messages)
    assert "user 'reader' or the token is wrong" in said
    assert Secrets().removed_from(said) == said, "nothing of it looks like a secret"
    assert "ADD_ENTRY" in said
    assert all(secret not in said for secret in (*USERS.values(), "not the secret of it"))


def test_a_client_refuses_a_bookie_that_lets_everybody_in() -> None:
    with pytest.raises(AuthenticationError):
        tokens.Client("a", "b", "c" * 32).step(b"")
