"""The cluster commands, on both metadata stores."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bkbox.base.ids import BookieId
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.metadata import connect
from bkbox.wire.metadata.service_info import rpc_service_info
from tests.harness.cluster import create_ledgers, ledger_of
from tests.harness.oxia import Oxia
from tests.harness.processes import free_port
from tests.harness.zookeeper import ZooKeeper


@pytest.fixture(params=["sqlite", "zookeeper", "oxia"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where there is no cluster yet."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path}/cluster.db"
    if request.param == "oxia":
        stand_in = request.getfixturevalue("oxia")
        assert isinstance(stand_in, Oxia)
        return stand_in.uri(stand_in.new_namespace())
    server = request.getfixturevalue("zookeeper")
    assert isinstance(server, ZooKeeper)
    return server.uri(layout="longhierarchical")


def cluster(uri: str, *words: str) -> Result:
    done = CliRunner().invoke(main, ["cluster", *words, "--metadata", uri])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


async def with_bookies(uri: str, *commands: list[str]) -> list[Result]:
    """The commands while one bookie is writable, one read-only and one down."""
    async with await connect(uri) as store:
        for name, read_only in (("a:1", False), ("b:2", True)):
            info = rpc_service_info(name[0], int(name[2]))
            await store.register(BookieId(name), info, read_only=read_only)
            await store.write_cookie(BookieId(name), b"", None)
        await store.write_cookie(BookieId("c:3"), b"", None)
        await store.under_replication.mark((await store.new_ledger_id()), ["c:3"], 1)
        return [await asyncio.to_thread(cluster, uri, *command) for command in commands]


def test_made_once(uri: str) -> None:
    done = cluster(uri, "init")
    assert (done.exit_code, done.stdout) == (0, "")
    instance_id = done.stderr.strip().removeprefix("made a new cluster, instance id ")
    assert len(instance_id) == 36
    again = cluster(uri, "init")
    assert again.exit_code == ExitCode.FAILED
    assert "exists already" in again.stderr
    info = json.loads(cluster(uri, "info", "-o", "json").stdout)
    assert info["instance_id"] == instance_id
    assert info["ledgers"] is None


def test_info(uri: str) -> None:
    assert cluster(uri, "init").exit_code == 0
    create_ledgers(uri, [ledger_of(1, ["a:1"]), ledger_of(2**40, ["a:1"])])
    plain, as_json = asyncio.run(
        with_bookies(uri, ["info"], ["info", "--count-ledgers", "-o", "json"])
    )
    assert plain.exit_code == as_json.exit_code == 0
    found = json.loads(as_json.stdout)
    assert len(found.pop("instance_id")) == 36
    layouts = {"sqlite": None, "zk+longhierarchical": "longhierarchical"}
    assert found == {
        "metadata": uri,
        "layout": layouts.get(uri.partition(":")[0], "hierarchical"),
        "writable": ["a:1"],
        "read_only": ["b:2"],
        "down": ["c:3"],
        "ledgers": 2,
        "replication": {"enabled": True, "auditor": None, "under_replicated": 1},
    }
    lines = dict(line.split("  ", 1) for line in plain.stdout.splitlines())
    assert lines["ledgers"].strip() == "not counted (--count-ledgers)"
    assert lines["bookies down"].strip() == "c:3"
    assert lines["under-replicated"].strip() == "1"


def test_list(uri: str) -> None:
    assert cluster(uri, "init").exit_code == 0
    shown = asyncio.run(
        with_bookies(uri, ["list"], ["list", "--rw"], ["list", "--ro"], ["list", "--all"])
    )
    a = ["a:1", "a:1", "writable", "-", "-"]
    b = ["b:2", "b:2", "read-only", "-", "-"]
    c = ["c:3", "-", "down", "-", "-"]
    title = ["bookie", "address", "mode", "version", "admin"]
    assert [[line.split() for line in each.stdout.splitlines()] for each in shown] == [
        [title, a, b, c],
        [title, a],
        [title, b],
        [title, a, b, c],
    ]
    unknown = dict.fromkeys(("address", "rack", "version", "admin", "socket"))
    assert json.loads(cluster(uri, "list", "--all", "-o", "json").stdout) == [
        {"id": name, "mode": "down", **unknown} for name in ("a:1", "b:2", "c:3")
    ]
    assert json.loads(cluster(uri, "list", "--rw", "-o", "json").stdout) == []


def test_no_cluster(uri: str) -> None:
    done = cluster(uri, "info")
    assert done.exit_code in (ExitCode.FAILED, ExitCode.TRY_AGAIN)
    assert "init" in done.stderr


def test_no_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkbox.cli.cluster.cluster.WAIT_S", 0.2)
    for command in ("init", "info", "list"):
        done = cluster(f"zk://127.0.0.1:{free_port()}/ledgers", command)
        assert done.exit_code == ExitCode.TRY_AGAIN
        assert "cannot be reached" in done.stderr


def test_a_uri_that_means_nothing() -> None:
    done = cluster("zk+ms://a:1/ledgers", "info")
    assert done.exit_code == ExitCode.USAGE
    assert "ms (ledgers in a metastore) is not supported" in done.stderr
