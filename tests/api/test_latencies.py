"""What a bookie says of how long adds and reads take: adds are adds, reads are reads."""

from __future__ import annotations

from typing import Any

from tests.harness.adminsocket import ask, status_of
from tests.harness.fixtures import MakeBookie
from tests.harness.raw import EOK, RawClient

ADDS, READS, DENIED = 5, 120, 7


def counted(status: dict[str, Any], part: str, name: str) -> dict[str, int]:
    """How many of each, over all disks."""
    found: dict[str, int] = {}
    for disk in status["disks"]:
        for each in disk[part]:
            found[each[name]] = found.get(each[name], 0) + each["count"]
    return found


def test_reads_are_in_no_histogram_of_adds(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    with RawClient(bookie.port) as client:
        for entry in range(ADDS):
            assert client.add(1, entry, b"entry") == EOK
        for _ in range(READS):
            assert client.read(1, 0).code == EOK
        for _ in range(DENIED):
            assert client.read(1, 10).code != EOK
        assert client.fence(1).code == EOK
    status = status_of(bookie)
    assert counted(status, "operations", "operation") == {"add": ADDS, "read": READS + DENIED}
    assert set(counted(status, "stages", "stage").values()) == {ADDS}
    (disk,) = (disk for disk in status["disks"] if disk["ledgers"])
    for each in disk["operations"]:
        assert 0 < each["p50_us"] <= each["p99_us"] <= each["max_us"] <= each["total_us"]
        assert each["recent_count"] == each["count"]
    add = next(each for each in disk["operations"] if each["operation"] == "add")
    assert add["total_us"] >= sum(stage["total_us"] for stage in disk["stages"])
    text = ask(bookie, "/metrics")[1]
    for name, count in (("add", ADDS), ("read", READS + DENIED)):
        line = f'bkbox_operation_seconds_count{{disk="{disk["path"]}",operation="{name}"}}'
        assert f"{line} {count}.0" in text
