"""Ledger passwords on a real bookie: what a key that is not the ledger's can do, which is nothing; and whose key counts
on a disk that has lost all it knew.

Plain reads carry no key in version 2, and none that counts in version 3, as BookKeeper has it: who may read is what
roles are for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import bkbox
from bkbox.bookie import admission
from tests.harness import raw, raw3
from tests.harness.cluster import NOBODY, create_ledgers, empty, ledger_of
from tests.harness.processes import BookieProcess
from tests.harness.processes import bkbox as command
from tests.harness.raw import FENCE, HIGH_PRIORITY, RECOVERY, RawClient, master_key
from tests.harness.raw3 import RawClient3

OURS = master_key(b"the right one")
WRONG = {
    "wrong": master_key(b"another"),
    "of no password": master_key(b""),
    "all zero": bytes(20),
    "one bit off": OURS[:-1] + bytes((OURS[-1] ^ 1,)),
}
NO_KEYS = {"none": b"", "too short": OURS[:19], "too long": OURS + b"\0"}
"""Which only version 3 can say."""

LOST, ALSO_LOST = 71, 72


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieProcess]:
    """One that has lost its disk and was repaired: it knows of LOST and ALSO_LOST what the metadata store says."""
    root = tmp_path_factory.mktemp("passwords")
    made = BookieProcess(root, f"sqlite:{root}/metadata.db")
    made.init(disks=1, repair_retry_initial_s=600, repair_retry_max_s=600)
    create_ledgers(
        made.metadata,
        [
            replace(ledger_of(ledger, [made.bookie_id, NOBODY]), password=b"the right one")
            for ledger in (LOST, ALSO_LOST)
        ],
    )
    empty(made.disks[0])
    command("cookie", "repair", "--config", str(made.config), "--yes")
    made.start()
    yield made
    assert made.stop() == 0


def abused_v2(client: RawClient, ledger: int, key: bytes) -> list[int]:
    return [
        client.add(ledger, 1, b"theirs", key=key),
        client.add(ledger, 0, b"theirs", RECOVERY | HIGH_PRIORITY, key),
        client.add(ledger, 5, b"theirs", RECOVERY, key),
        client.fence(ledger, 0, key).code,
        client.fence(ledger, -1, key).code,
        _fencing_batch(client, ledger, key),
    ]


def _fencing_batch(client: RawClient, ledger: int, key: bytes) -> int:
    client.send(raw.batch_frame(ledger, 0, 1, flags=FENCE, key=key))
    return int.from_bytes(client.frame()[4:8], "big")


def abused_v3(client: RawClient3, ledger: int, key: bytes) -> list[int]:
    return [
        client.add3(ledger, 1, b"theirs", key=key),
        client.add3(ledger, 2, b"theirs", key=key, deferred=True),
        client.add3(ledger, 0, b"theirs", key=key, recovery=True),
        client.fence3(ledger, 0, key).status,
        client.fence3(ledger, -1, key).status,
        client.write_lac(ledger, 9, key),
    ]


@pytest.mark.parametrize("name", [*WRONG, *NO_KEYS])
def test_another_key_writes_fences_and_blocks_nothing(bookie: BookieProcess, name: str) -> None:
    ledger = 100 + [*WRONG, *NO_KEYS].index(name)
    key = {**WRONG, **NO_KEYS}[name]
    with RawClient(bookie.port) as owner, RawClient(bookie.port) as old:
        with RawClient3(bookie.port) as new:
            assert owner.add(ledger, 0, b"mine", key=OURS) == raw.EOK
            assert set(abused_v3(new, ledger, key)) == {raw3.EUA}
            if name in WRONG:
                assert set(abused_v2(old, ledger, key)) == {raw.EUA}
            found = new.read3(ledger, 0, key=key)
            assert found.status == raw3.EOK
            assert bytes(found.part[4]).endswith(b"mine")  # type: ignore[index,arg-type]
            assert new.read_lac(ledger)[1] is None, "no LAC was stored"
        # Its owner goes on, and finds what he wrote and nothing else.
        assert owner.add(ledger, 1, b"mine too", key=OURS) == raw.EOK
        assert raw.payload_of(owner.read(ledger, 0).body) == b"mine"
        assert raw.payload_of(owner.read(ledger, 1).body) == b"mine too"
        assert owner.read(ledger, 5).code == raw.ENOENTRY


def test_the_first_to_call_after_a_lost_disk_decides_nothing(bookie: BookieProcess) -> None:
    with RawClient(bookie.port) as first, RawClient3(bookie.port) as new:
        for key in WRONG.values():
            assert set(abused_v2(first, LOST, key)) == {raw.EUA}
            assert set(abused_v3(new, ALSO_LOST, key)) == {raw3.EUA}
        for ledger in (LOST, ALSO_LOST):
            assert first.read(ledger, 0).code == raw.EIO, "unknown, and not denied"
            assert first.add(ledger, 0, b"x", key=OURS) == raw.EFENCED
            assert first.add(ledger, 0, b"x", RECOVERY | HIGH_PRIORITY, OURS) == raw.EOK
            assert first.fence(ledger, 0, OURS).code == raw.EOK


# ---- in constant time -------------------------------------------------------------------------------

COMPARING = (
    "bookie/admission.py",
    "api/admin/access.py",
    "security/tokens.py",
    "security/digest_md5.py",
)
_SECRET = ("key", "token", "secret", "password", "proof", "response", "expected")


def test_a_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a key decides. (The kernel lets pass what equals the key of a ledger that takes adds, in words of 64 bits,
    which nobody guesses one by one; whatever does not is decided here.)"""
    asked = []

    def compare(one: bytes, other: bytes) -> bool:
        asked.append((one, other))
        return one == other

    monkeypatch.setattr(admission, "compare_digest", compare)
    for key in WRONG.values():
        verdict = admission.admit(admission.LedgerStatus.OPEN, admission.Request.ADD, OURS, key)
        assert verdict.code is not admission.Code.EOK
    assert asked == [(OURS, key) for key in WRONG.values()]


@pytest.mark.parametrize("name", COMPARING)
def test_no_secret_is_compared_by_equality(name: str) -> None:
    tree = ast.parse((Path(bkbox.__file__).parent / name).read_text())
    equalities = [
        ast.unparse(node).lower().replace(".keys()", "")
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops)
    ]
    assert not [text for text in equalities if any(word in text for word in _SECRET)]
    assert "compare_digest" in ast.unparse(tree)
