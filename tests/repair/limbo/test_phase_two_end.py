"""A power cut of several hosts at once: what recovery bears, what it says where it does not, and how it is ended."""

from __future__ import annotations

import json

import pytest

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.wire.metadata.ledger import LedgerState
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.waiting import wait_for
from tests.repair.limbo.phasetwo import (
    StartCluster,
    blocker_of,
    fill,
    held,
    ledger_over,
    lose_disks,
    metadata_of,
    payload,
    start_cluster,
    store,
    wait_until_repaired,
)

__all__ = ["start_cluster"]


def ledger_command(bookie: BookieProcess, *words: str, stdin: str = "") -> tuple[int, str, str]:
    done = bkbox("ledger", *words, "--metadata", bookie.metadata, check=False, input=stdin)
    return done.returncode, done.stdout, done.stderr


def test_one_of_three_in_limbo_is_borne_and_two_are_ended_by_an_operator(
    start_cluster: StartCluster,
) -> None:
    """E = WQ = 3, AQ = 2: recovery bears AQ - 1 = 1 bookie in limbo and names them where there are two."""
    a, b, c = start_cluster(3)
    uri = a.metadata
    fill([a, b, c], ledger_over(1, (0, [a, b, c])), 6)
    lose_disks(a)
    wait_until_repaired(a)
    assert (metadata_of(uri, 1).state, metadata_of(uri, 1).last_entry) == (LedgerState.CLOSED, 5)

    fill([a, b, c], ledger_over(2, (0, [a, b, c])), 6)
    store(b, 2, [6])  # on its way, not acknowledged
    store(c, 2, [6, 8], lac=5)
    lose_disks(a, b)
    for bookie in (a, b):
        found = wait_for(
            lambda bookie=bookie: (
                (each := blocker_of(bookie, 2)) and "limbo" in each["reason"] and each
            ),
            "the ledger to be blocked by limbo",
        )
        assert f"{a.bookie_id} is in limbo" in found["reason"]
        assert f"{b.bookie_id} is in limbo" in found["reason"]
        assert (
            "recovery bears 1 such bookie in a write set (AQ - 1), here there are 2"
            in found["reason"]
        )
        assert "bkbox ledger end 2 --accept-loss" in found["what_to_do"]
    assert blocker_of(a, 1) is None
    wait_for(lambda: a.status()["limbo"]["ledgers"] == 1, "all but that one to be repaired")

    # ---- what the commands say of it, changing nothing
    code, out, _ = ledger_command(a, "explain", "2", "-o", "json")
    assert code == 0
    said = json.loads(out)
    states = {
        each["bookie"]: (each["alive"], each["limbo"], each["fenced"]) for each in said["bookies"]
    }
    assert states == {
        a.bookie_id: (True, True, True),
        b.bookie_id: (True, True, True),
        c.bookie_id: (True, False, True),
    }
    assert "is in limbo" in said["reason"]
    assert {each["bookie"] for each in said["answers"]} <= {a.bookie_id, b.bookie_id, c.bookie_id}
    assert ledger_command(a, "explain", "2")[0] == 0
    code, out, _ = ledger_command(a, "recover", "2", "--dry-run", "-o", "json")
    assert (code, json.loads(out)["end"]) == (0, None)
    assert ledger_command(a, "recover", "2")[0] == ExitCode.TRY_AGAIN
    code, out, _ = ledger_command(a, "end", "2", "--accept-loss", "--dry-run", "-o", "json")
    plan = json.loads(out)
    assert (code, plan["end"], plan["found_and_dropped"]) == (0, 6, [[8, 8]])
    assert plan["acknowledged_and_lost"] == []
    assert metadata_of(uri, 2).state is LedgerState.IN_RECOVERY

    # ---- the operator's word
    code, _, err = ledger_command(a, "end", "2", "--accept-loss", stdin="3\n")
    assert code == ExitCode.FAILED
    assert "would end at entry" in err
    assert metadata_of(uri, 2).state is LedgerState.IN_RECOVERY
    code, out, err = ledger_command(a, "end", "2", "--accept-loss", "-o", "json", stdin="2\n")
    assert code == 0, err
    assert json.loads(out)["last_entry"] == 6
    wait_until_repaired(a, b)
    for bookie in (a, b, c):
        assert held(bookie, 2, 7) == {entry: payload(2, entry) for entry in range(7)}
    code, _, err = ledger_command(a, "end", "2", "--accept-loss", "--yes")
    assert code == ExitCode.USAGE
    assert "every entry is found" in err


@pytest.mark.parametrize("quorums", [(2, 1)])
def test_an_ack_quorum_of_one_bears_no_limbo_at_all(
    start_cluster: StartCluster, quorums: tuple[int, int]
) -> None:
    """And a ledger that is plugged leaves limbo although nobody has all of its entries."""
    a, b = start_cluster(2)
    fill([a, b], ledger_over(1, (0, [a, b]), ack_quorum=quorums[1]), 3)
    store(b, 1, [4])
    lose_disks(a)
    found = wait_for(lambda: blocker_of(a, 1), "the ledger to be blocked")
    assert (
        "recovery bears 0 such bookies in a write set (AQ - 1), here there are 1" in found["reason"]
    )
    code, out, err = ledger_command(a, "end", "1", "--accept-loss", "--plug", "--yes", "-o", "json")
    assert code == 0, err
    assert json.loads(out)["last_entry"] == 4
    wait_until_repaired(a)
    whole = {entry: payload(1, entry) for entry in range(5)} | {3: b""}
    assert held(a, 1, 5) == held(b, 1, 5) == whole
