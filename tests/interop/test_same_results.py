"""Apache's client and bkbox's, the same doings, one cluster of bookies of both kinds: they see the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bkbox.client import sync
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import InteropCluster
from tests.interop.sameresults import SCENARIOS, Look

TABLE = Path(__file__).parents[2] / "docs" / "client.md"


@pytest.fixture(scope="module")
def mixed(make_cluster: MakeCluster) -> InteropCluster:
    return make_cluster("same-results", java=1, bkbox=2)


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_clients_see_the_same(mixed: InteropCluster, name: str) -> None:
    protocol, scenario = SCENARIOS[name]
    seen = []
    for kind in ("java", "bkbox"):
        client = mixed.client(f"{kind}-{protocol}")
        look = Look(client)
        scenario(client, look)
        seen.append(look.notes)
    java, ours = seen
    assert java == ours
    assert java


def test_a_log_is_no_trouble_to_java(mixed: InteropCluster) -> None:
    """Its list lies below the root of the ledgers, and its ledgers are like any others."""
    java, ours = mixed.client("java-v3"), mixed.client("bkbox-v3")
    with sync.connect(mixed.uri) as client:
        log = client.log("orders")
        with log.open_writer() as writer:
            position = writer.append(b"seen by Java")
        with log.open_writer() as writer:
            writer.append(b"again")
        ledgers = log.info().ledgers
        assert len(ledgers) == 2
        listed = java.ledgers()
        assert set(ledgers) <= set(listed)
        assert listed == ours.ledgers()
        metadata = java.metadata(ledgers[0])
        assert (metadata.state, metadata.custom) == ("CLOSED", {"bkbox.log": b"orders"})
        ((_, payload),) = java.open(ledgers[0]).read(position.entry_id, position.entry_id)
        assert payload.endswith(b"seen by Java")
        java.recover(ledgers[1], 1)
        with log.open_writer() as writer:
            assert writer.epoch == 3
        log.delete()
    assert not set(ledgers) & set(java.ledgers())


def test_the_table_in_the_documentation_is_this_one() -> None:
    text = TABLE.read_text()
    written = re.findall(
        r"^\| \d+ \| (.+?) \|$",
        text[text.index("<!-- same -->") : text.index("<!-- /same -->")],
        re.M,
    )
    assert written == [name.replace("|", "\\|") for name in SCENARIOS]
    assert len(written) >= 60
