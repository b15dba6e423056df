"""The configuration file is edited under a bookie that runs: it says what the next start would make of it."""

from __future__ import annotations

import json
from typing import Any

from tests.harness.adminsocket import status_of
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox, put_keys
from tests.harness.waiting import wait_for


def warnings(status: dict[str, Any], word: str) -> list[str]:
    return [each["text"] for each in status["warnings"] if word in each["text"]]


def match(bookie: BookieProcess, wanted: bool | None) -> dict[str, Any]:
    """The status once it says so of the cookies."""

    def look() -> dict[str, Any] | None:
        status = status_of(bookie)
        return status if status["cookies"]["ok"] is wanted else None

    found = wait_for(look, f"cookies: {wanted}")
    assert isinstance(found, dict)
    return found


def test_disks_are_edited_and_put_back(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    both = [str(disk) for disk in bookie.disks]
    assert warnings(match(bookie, True), "cookies") == []
    for edited in (both[:1], [*both, str(bookie.root / "disk3")]):
        put_keys(bookie, disks=edited)
        (warning,) = warnings(match(bookie, False), "cookies")
        assert "the next start would refuse" in warning
        put_keys(bookie, disks=both)
        assert warnings(match(bookie, True), "cookies") == []


def test_a_disk_is_removed_and_the_file_names_it_still(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    bkbox("disk", "drain", str(bookie.disks[1]), "--config", str(bookie.config))
    bkbox("disk", "remove", str(bookie.disks[1]), "--config", str(bookie.config))
    match(bookie, False)
    assert bookie.stop() == 0
    bookie.start(wait=False)
    assert bookie.process is not None
    assert bookie.process.wait(30) == 4, "it said so"
    bookie.ensure_gone()
    put_keys(bookie, disks=[str(bookie.disks[0])])
    bookie.start()
    match(bookie, True)


def test_another_address_another_store_and_a_broken_file(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    before = bookie.config.read_text()
    match(bookie, True)
    put_keys(bookie, bookie_id="another:3181")
    match(bookie, False)
    bookie.config.write_text(before)
    match(bookie, True)
    put_keys(bookie, metadata=f"sqlite:{bookie.root}/other.db")
    assert warnings(match(bookie, None), "another metadata store")
    assert not (bookie.root / "other.db").exists(), "it was only looked at"
    bookie.config.write_text(before + "\nno_such_key = 1\n")
    status = match(bookie, True)
    (warning,) = warnings(status, "would refuse the configuration file")
    assert "no_such_key" in warning
    bookie.config.unlink()
    (warning,) = warnings(match(bookie, True), "would refuse the configuration file")
    bookie.config.write_text(before)
    wait_for(lambda: not status_of(bookie)["config_problem"], "the file to be good again")


def test_others_may_write_the_file(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    match(bookie, True)
    bookie.config.chmod(0o666)

    def told() -> list[str]:
        return warnings(status_of(bookie), "the next start would refuse the configuration file")

    assert str(bookie.config) in wait_for(told, "the status to tell")[0]
    found = bkbox("doctor", "--config", str(bookie.config), "-o", "json", check=False)
    checks = [
        each["check"] for each in json.loads(found.stdout)["findings"] if each["verdict"] != "ok"
    ]
    assert checks.count("configuration") == 1, "one finding for one cause"
    bookie.config.chmod(0o600)
    wait_for(lambda: not told(), "the status to be well again")
