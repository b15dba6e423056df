"""Ledgers that a bookie does not hold yet, where clients have to authenticate: only what the metadata store names comes
into being, with the password that stands there."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bkbox.client import connect
from tests.harness import raw
from tests.harness.cluster import create_ledgers, ledger_of
from tests.harness.processes import BookieProcess
from tests.harness.raw import master_key
from tests.harness.raw3 import ADD, EFENCED, EIO, ENOENTRY, ENOLEDGER, EOK, EUA, add_part
from tests.harness.waiting import wait_for
from tests.security.certificates import secret_file
from tests.security.secured import Visitor

SECRETS = {"owner": "the-owner-s-secret", "copier": "the-copier-s-secret"}
OURS, THEIRS = master_key(b"ours"), master_key(b"theirs")
NAMED = range(100, 140)
"""Ledgers that the metadata store names; each test takes its own."""


class Secured:
    def __init__(self, root: Path) -> None:
        users = secret_file(root / "users", "".join(f"{n}:{s}\n" for n, s in SECRETS.items()))
        self.files = {name: secret_file(root / name, text) for name, text in SECRETS.items()}
        self.bookie = BookieProcess(root, f"sqlite:{root}/metadata.db").init(
            disks=1, auth="token", auth_users_file=users, roles="owner=write;copier=replication"
        )
        self.bookie.start()
        create_ledgers(
            self.bookie.metadata,
            [replace(ledger_of(each, ["127.0.0.1:1"]), password=b"ours") for each in NAMED],
        )

    @contextmanager
    def inside(self, user: str) -> Iterator[Visitor]:
        with Visitor(self.bookie.port) as client:
            assert client.log_in_with_token(user, SECRETS[user]) == EOK
            yield client

    @contextmanager
    def without_metadata(self) -> Iterator[None]:
        path = self.bookie.metadata.partition(":")[2]
        os.rename(path, f"{path}.away")
        try:
            yield
        finally:
            os.rename(f"{path}.away", path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("squatting"))
    try:
        yield made
    finally:
        made.bookie.ensure_gone()


def test_what_the_metadata_do_not_name_is_neither_made_nor_fenced(secured: Secured) -> None:
    with secured.inside("copier") as copier, secured.inside("owner") as owner:
        assert copier.add3(5, 0, recovery=True, key=THEIRS) == ENOLEDGER
        assert copier.fence3(6, key=THEIRS).status == ENOLEDGER
        assert owner.add3(7, 0, key=THEIRS) == ENOLEDGER
        assert owner.write_lac(8, 0, key=THEIRS) == ENOLEDGER
        copier.send(raw.add_frame(9, 0, b"x", raw.RECOVERY, key=THEIRS))
        assert copier.answer().code == raw.ENOLEDGER
        copier.send(raw.read_frame(10, 0, raw.FENCE, key=THEIRS))
        assert copier.answer().code == raw.ENOLEDGER
    create_ledgers(
        secured.bookie.metadata,
        [replace(ledger_of(each, ["127.0.0.1:1"]), password=b"ours") for each in range(5, 11)],
    )
    with secured.inside("owner") as owner:
        for ledger in range(5, 11):
            assert owner.add3(ledger, 0, key=OURS) == EOK, (
                "its owner comes, and nothing is in its way"
            )
    wait_for(
        lambda: (
            "to make a ledger that is in no metadata for 'token/copier'" in secured.bookie.stderr
        ),
        "the log of it",
    )


def test_fences_ahead_of_the_counter_of_ids_stop_nobody(secured: Secured) -> None:
    with secured.inside("copier") as copier:
        for ledger in range(500):
            assert copier.fence3(ledger + 100_000, key=THEIRS).status == ENOLEDGER

    async def story() -> None:
        options = {"auth": "token", "auth_user": "owner"}
        options["auth_secret_file"] = str(secured.files["owner"])
        async with connect(secured.bookie.metadata, **options) as client:  # type: ignore[arg-type]
            for _ in range(3):
                async with await client.create_ledger(1, 1, 1) as writer:
                    await writer.append(b"x")

    asyncio.run(story())


def test_another_password_makes_no_ledger(secured: Secured) -> None:
    first, second, third, fourth, fifth = NAMED[:5]
    with secured.inside("copier") as copier, secured.inside("owner") as owner:
        assert copier.add3(first, 0, recovery=True, key=THEIRS) == EUA
        assert copier.fence3(second, key=THEIRS).status == EUA
        assert owner.add3(third, 0, key=THEIRS) == EUA
        assert owner.write_lac(fourth, 0, key=THEIRS) == EUA
        assert copier.fence3(fifth).status == EUA, "no key is not the right one"
        copier.send(raw.add_frame(first, 0, b"x", raw.RECOVERY, key=THEIRS))
        assert copier.answer().code == raw.EUA
        for ledger in NAMED[:5]:
            assert owner.add3(ledger, 0, key=OURS) == EOK


def test_recoveries_of_what_the_metadata_name_go_on(secured: Secured) -> None:
    """Also on a bookie that they do not name yet."""
    added, fenced = NAMED[5:7]
    with secured.inside("copier") as copier, secured.inside("owner") as owner:
        assert copier.add3(added, 0, recovery=True, key=OURS) == EOK
        assert copier.fence3(fenced, key=OURS).status == ENOENTRY
        assert owner.add3(fenced, 0, key=OURS) == EFENCED
        assert owner.add3(added, 1, key=OURS) == EOK


def test_the_order_of_a_connection_is_kept_and_others_do_not_wait(secured: Secured) -> None:
    with secured.inside("owner") as owner:
        ledgers = NAMED[7:27]
        txns = [owner.post(ADD, add_part(each, 0, key=OURS)) for each in (*ledgers, *ledgers)]
        found = [owner.answer3() for _ in txns]
        assert [each.txn for each in found] == txns
        assert {each.status for each in found} == {EOK}


def test_without_metadata_nothing_is_made_and_what_is_there_goes_on(secured: Secured) -> None:
    known, new, squatted = NAMED[27:30]
    with secured.inside("owner") as owner, secured.inside("copier") as copier:
        assert owner.add3(known, 0, key=OURS) == EOK
        answers: list[int] = []
        with secured.without_metadata():
            waits = threading.Thread(target=lambda: answers.append(owner.add3(new, 0, key=OURS)))
            waits.start()
            assert copier.add3(known, 1, recovery=True, key=OURS) == EOK, "others go on"
            waits.join()
            assert answers == [EIO]
            assert copier.fence3(squatted, key=THEIRS).status == EIO
            assert owner.add3(known, 2, key=OURS) == EOK
        wait_for(lambda: owner.add3(new, 0, key=OURS) == EOK, "the metadata store")
        assert owner.add3(squatted, 0, key=OURS) == EOK
    assert f"ledger {new} is not created" in secured.bookie.stderr
