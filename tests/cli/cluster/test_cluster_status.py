"""``bkbox cluster status`` on real bookies: by socket, by the admin API with a token, by the wire protocol; one that
hangs, one that was killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox, free_port
from tests.harness.waiting import wait_for

TOKEN = "t" * 32


@pytest.fixture
def cluster(make_bookie: MakeBookie, tmp_path: Path) -> list[BookieProcess]:
    """Two bookies; both answer over TCP as well."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    made = [
        make_bookie(
            name,
            http_listen=f"127.0.0.1:{free_port()}",
            http_token_file=str(token),
        )
        for name in ("one", "two")
    ]
    for bookie in made:
        bookie.start()
    return made


def rows(*arguments: str) -> dict[str, Any]:
    found = json.loads(bkbox("cluster", "status", "-o", "json", *arguments).stdout)
    assert found["problem"] == ""
    return {each["bookie"]: each for each in found["bookies"]}


def hide(bookie: BookieProcess) -> None:
    """Takes away its socket, as it is with a bookie of another host."""
    (bookie.disks[0] / "admin.sock").unlink()


def test_all_are_shown_each_as_it_is(cluster: list[BookieProcess], tmp_path: Path) -> None:
    one, two = cluster
    config = ("--config", str(one.config))

    def state(bookie: BookieProcess, *more: str) -> str:
        return str(rows(*config, *more)[bookie.bookie_id]["state"])

    for bookie in cluster:
        wait_for(lambda bookie=bookie: state(bookie) == "writable", "its first answer")
    found = rows(*config)
    for bookie in cluster:
        row = found[bookie.bookie_id]
        assert (row["verdict"], row["silent_s"], row["problems"]) == ("ok", None, [])
        assert row["report"]["disks_in_service"] == 2
        assert row["report"]["adds"] == 0.0
        assert row["admin"].startswith("http://127.0.0.1:")

    hide(two)
    token = ("--token-file", str(tmp_path / "token"))
    assert rows(*config, *token)[two.bookie_id]["report"]["disks_in_service"] == 2
    by_wire = rows(*config)[two.bookie_id]
    assert by_wire["problems"] == ["its admin API needs a token: give --token-file"]
    assert by_wire["report"]["total_bytes"] > by_wire["report"]["free_bytes"] > 0
    assert by_wire["report"]["adds"] is None
    assert rows("--bookie", found[one.bookie_id]["admin"], *token).keys() == found.keys()

    with two.paused(children=False):
        stopped = rows(*config, *token)[two.bookie_id]
        assert stopped["report"]["total_bytes"] > 0, "its front-end still answers clients"
        assert "has not answered within" in stopped["problems"][0]

    two.kill()
    wait_for(lambda: state(two, *token) == "down", "the end of its registration")
    done = bkbox("cluster", "status", *config, "--sort", "state")
    assert done.stdout.splitlines()[1].split()[:3] == [two.bookie_id, "[X]", "down"]
    assert "1 writable, 1 down" in done.stderr
    done = bkbox("cluster", "status", *config, "--filter", "writable")
    assert two.bookie_id not in done.stdout
    two.start()
    wait_for(lambda: state(two) == "writable", "its return")


def test_which_cluster_has_to_be_said() -> None:
    assert (
        "no configuration was found"
        in bkbox("cluster", "status", "--sort", "fill", check=False).stderr
    )
    both = ("--bookie", "http://127.0.0.1:1", "--metadata", "sqlite:c.db")
    assert "give one of" in bkbox("cluster", "status", *both, check=False).stderr
