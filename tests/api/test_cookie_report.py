"""Cookies field by field, of a bookie that was initialised for real."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bkbox.api.admin.status import Cookies
from bkbox.api.status.cookie_report import view_of
from bkbox.config import load as configuration
from bkbox.metadata import connect
from bkbox.storage.files import RealFiles
from bkbox.supervisor.boot import cookies
from tests.harness.cluster import delete_cookie
from tests.harness.processes import BookieProcess

FIELDS = {"bookieHost", "journalDir", "ledgerDirs", "indexDirs", "instanceId"}


@pytest.fixture
def bookie(tmp_path: Path) -> BookieProcess:
    return BookieProcess(tmp_path, f"sqlite:{tmp_path}/cluster.db").init(disks=2)


def look(bookie: BookieProcess) -> Cookies:
    async def go() -> Cookies:
        config = configuration.load(bookie.config, {})
        async with await connect(config.metadata) as store:
            evidence = await cookies.gather(config, store, RealFiles())
            return view_of(evidence, 5)

    return asyncio.run(go())


def test_all_places_and_all_fields_agree(bookie: BookieProcess) -> None:
    found = look(bookie)
    assert found.ok
    assert found.advice == ""
    places = {"metadata", *map(str, bookie.disks)}
    assert {(each.where, each.field) for each in found.fields} == {
        (place, field) for place in places for field in FIELDS
    }
    assert all(each.same for each in found.fields)


def test_the_field_that_differs_is_named_where_it_does(bookie: BookieProcess) -> None:
    version = bookie.disks[1] / "VERSION"
    version.write_text(version.read_text().replace("disk1", "diskX"))
    found = look(bookie)
    assert found.ok is False
    wrong = [each for each in found.fields if not each.same]
    assert {each.where for each in wrong} == {str(bookie.disks[1])}
    assert "ledgerDirs" in {each.field for each in wrong}
    assert all("diskX" in each.found for each in wrong if each.field == "ledgerDirs")
    assert "bkbox cookie repair" in found.advice


def test_a_cookie_that_is_gone_or_cannot_be_read(bookie: BookieProcess) -> None:
    (bookie.disks[0] / "VERSION").write_text("nonsense")
    delete_cookie(bookie.metadata, bookie.bookie_id)
    found = look(bookie)
    assert found.ok is False
    wrong = {each.where for each in found.fields if not each.same}
    assert wrong >= {"metadata", str(bookie.disks[0])}
