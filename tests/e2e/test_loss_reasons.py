"""What an operator is told of a disk that may have lost something: what, since when, and never too much."""

from __future__ import annotations

from bkbox.storage.files import RealFiles
from bkbox.storage.log.tail import read_tail
from tests.e2e.test_damage import ENTRIES, OPEN_LEDGER, fill, flip
from tests.harness.cluster import pretend_another_boot
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.waiting import wait_for


def killed_at_rest(bookie: BookieProcess) -> BookieProcess:
    """It has entries, all of them durable and proved so."""

    def is_proved() -> bool:
        mark = read_tail(RealFiles(), bookie.disks[0])
        return mark is not None and mark.offset > ENTRIES * 16

    bookie.start()
    fill(bookie)
    wait_for(is_proved, "a tail mark behind the entries")
    bookie.kill()
    pretend_another_boot(bookie.disks)
    return bookie


def test_since_when_something_may_be_missing(make_bookie: MakeBookie) -> None:
    bookie = killed_at_rest(make_bookie(disks=1, ack_after="write")).start()
    (disk,) = bookie.status()["disks"]
    assert disk["crash_class"] == "host crash"
    assert "the host was restarted" in disk["reason"]
    assert "only ledgers written in the last seconds may lack some" in disk["reason"]
    assert "nothing acknowledged before 20" in disk["reason"]
    for words in (("status",), ("disk", "list")):
        shown = bkbox(*words, "--config", str(bookie.config)).stdout
        assert "nothing acknowledged before" in " ".join(shown.split())


def test_rot_in_what_was_synced_is_not_dated(make_bookie: MakeBookie) -> None:
    """The damaged entry was acknowledged before the last sync: the time of that says nothing of it."""
    bookie = killed_at_rest(make_bookie(disks=1, ack_after="write"))
    flip(bookie.disks[0], OPEN_LEDGER, 10)
    bookie.start()
    (disk,) = bookie.status()["disks"]
    assert "the entry log is not in order" in disk["reason"]
    assert "nothing acknowledged before" not in disk["reason"]
