"""The log of a real bookie: every process in one form, one id from the connection to the disk."""

from __future__ import annotations

import json
from typing import Any

from bkbox.wire.codes import Code
from tests.harness import raw
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw3 import RawClient3 as Raw3Client
from tests.harness.waiting import wait_for


def lines(bookie: BookieProcess) -> list[dict[str, Any]]:
    """All of the log, each line of which has to be an object."""
    return [
        json.loads(line) for line in bookie.stderr.splitlines(keepends=True) if line.endswith("\n")
    ]


def test_one_id_from_frame_to_disk(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(log_format="json", log_level="debug", slow_operation_ms=1).start()
    other = raw.RawClient(bookie.port)
    client = raw.RawClient(bookie.port)
    assert client.add(7, 0, b"x") == raw.EOK
    assert client.add(7, 1, b"x", key=raw.master_key(b"wrong")) == raw.EUA

    def refusal() -> dict[str, Any] | None:
        return next((each for each in lines(bookie) if "gets EUA" in each["event"]), None)

    refused = wait_for(refusal, "the refusal in the log")
    assert refused["process"].startswith("worker ")

    def greetings() -> list[dict[str, Any]]:
        of_it = [each for each in lines(bookie) if each.get("trace") == refused["trace"]]
        return [each for each in of_it if each["process"] == "frontend"]

    (greeting,) = wait_for(greetings, "who that connection is")
    assert str(client.sock.getsockname()[1]) in greeting["event"]

    for first in range(0, 400, 100):  # until one of them is slow: the disk decides
        for entry in range(first, first + 100):
            assert client.add(7, 1 + entry, bytes(100_000)) == raw.EOK
        slow = [each for each in lines(bookie) if each["event"].startswith("slow: ")]
        if slow:
            break
    assert slow, "no group took a millisecond"
    assert slow[-1]["trace"] == refused["trace"]
    client.close()
    other.close()
    assert bookie.stop() == 0
    processes = {each["process"].split()[0] for each in lines(bookie)}
    assert {"supervisor", "frontend", "worker"} <= processes


def test_the_level_changes_while_it_runs(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    raw.RawClient(bookie.port).close()
    assert "is accepted" not in bookie.stderr
    text = bookie.config.read_text().replace('# log_level = "info"', 'log_level = "debug"')
    bookie.config.write_text(text)
    bkbox("config", "reload", "--config", str(bookie.config))

    def greeted() -> bool:
        raw.RawClient(bookie.port).close()
        return "is accepted" in bookie.stderr

    wait_for(greeted, "a line of the front-end at level debug")


def test_what_is_ordinary_is_no_warning(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(log_format="json").start()
    with Raw3Client(bookie.port) as client:
        code, packet, last = client.read_lac(77)
        assert (code, packet, last) == (Code.ENOENTRY.v3, None, None)
        assert client.force(77) == raw.EOK
        assert client.read(77, 0).code != raw.EOK
    assert bookie.stop() == 0
    ordinary = [each["event"] for each in lines(bookie)]
    assert not any("without a disk" in event for event in ordinary)
    warned = {each["event"] for each in lines(bookie) if each["level"] != "info"}
    assert not any("front-end" in event for event in warned), "it ended in order"
