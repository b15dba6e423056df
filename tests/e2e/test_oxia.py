"""Bookies whose metadata is in Oxia: repair, every command, an imported configuration, TLS and tokens.

The servers are a stand-in: tests/harness/oxia_server.py says what these tests do not show.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bkbox.base.ids import LedgerId
from bkbox.cli.main import main
from bkbox.errors import ConfigError, MetadataError, MetadataUnavailableError
from bkbox.metadata import connect, init_cluster
from tests.harness.oxia import Oxia
from tests.harness.processes import bkbox
from tests.harness.waiting import wait_for
from tests.repair.copies import Cluster, hands
from tests.security.certificates import Authority, secret_file


@pytest.fixture
def cluster(tmp_path: Path, oxia: Oxia) -> Iterator[Cluster]:
    found = Cluster(tmp_path, oxia.uri(oxia.new_namespace()))
    bkbox("cluster", "init", "--metadata", found.uri)
    yield found
    found.close()


async def whole(uri: str, ledgers: dict[LedgerId, int], lost: str) -> bool:
    async with hands(uri) as our:
        for ledger in ledgers:
            if lost in (await our.metadata(ledger)).bookies():
                return False
        for ledger, entries in ledgers.items():
            await our.assert_whole(ledger, entries)
        return True


def states(uri: str) -> dict[str, list[str]]:
    info = json.loads(bkbox("cluster", "info", "--metadata", uri, "-o", "json").stdout)
    return {each: info[each] for each in ("writable", "read_only", "down")}


@pytest.mark.slow
def test_what_a_killed_bookie_had_is_repaired(cluster: Cluster) -> None:
    settings = {
        "autorecovery_enabled": "true",
        "autorecovery_lost_bookie_delay_s": 0,
        "autorecovery_open_ledger_grace_s": 0,
        "metadata_wait_s": 5,
    }
    first = cluster.start(3, **settings)

    async def write() -> dict[LedgerId, int]:
        async with hands(cluster.uri) as our:
            return {await our.closed(60): 60, await our.in_recovery(20): 20}

    ledgers = asyncio.run(write())
    (newcomer,) = cluster.start(1, **settings)
    lost = first[0].bookie_id
    first[0].kill()
    wait_for(
        lambda: asyncio.run(whole(cluster.uri, ledgers, lost)),
        "all copies to be back",
        timeout=120,
        pause=0.5,
    )
    assert states(cluster.uri) == {
        "writable": sorted(each.bookie_id for each in (first[1], first[2], newcomer)),
        "read_only": [],
        "down": [lost],
    }
    first[0].start()
    wait_for(lambda: states(cluster.uri)["down"] == [], "the bookie to be back")


def test_a_bookie_registers_again_and_reads_its_ledgers(cluster: Cluster, oxia: Oxia) -> None:
    (bookie,) = cluster.start(1, metadata_wait_s=5)
    namespace = cluster.uri.rpartition("/")[2]
    wrote = bkbox(*("ledger", "write", "--metadata", cluster.uri, "-e", "1"), input="a\nb\n").stdout
    oxia.do("expire", namespace=namespace)
    wait_for(lambda: states(cluster.uri)["writable"] == [bookie.bookie_id], "a new session")
    bookie.kill()
    bookie.start()
    assert states(cluster.uri)["writable"] == [bookie.bookie_id], "it took its own record over"
    ledger = json.loads(bkbox("ledger", "list", "--metadata", cluster.uri, "-o", "json").stdout)
    assert wrote
    assert len(ledger) == 1


# ---- commands -----------------------------------------------------------------------------------

COMMANDS = """
cluster info
cluster list
cluster status
ledger create -e 1
ledger write -e 1
ledger list
ledger show 1
ledger explain 1
ledger read 1
ledger recover 1
ledger end --stuck --dry-run
ledger delete 1 --yes
log write l -e 1
log read l
log tail l
log list
log truncate l --before end --yes
log delete l --yes
log forget l 99 --dry-run
autorecovery status
autorecovery list
autorecovery check
autorecovery disable
autorecovery enable
placement explain -E 1 -Q 1 -A 1
top
audit -o AUDIT
repair --from-audit AUDIT --dry-run
export -d EXPORT
import EXPORT
decommission NOBODY --dry-run
"""
"""Each with ``--metadata``, in this order, on a cluster of one bookie."""
MAY_FAIL = {"log forget", "decommission", "audit", "repair", "import", "ledger recover"}
"""What they find here is nothing to work on; they say so, and it is not the store's fault."""
ELSEWHERE = {"init", "cluster init", "autorecovery run", "bench client"}
"""The cluster fixture has run the first two; the others go on until they are stopped."""


def with_metadata(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[str]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from with_metadata(found, (*words, name))
    elif any("--metadata" in each.opts for each in command.params):
        yield " ".join(words)


@pytest.mark.slow
def test_every_command_that_takes_a_metadata_store(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(1)
    run = set()
    for line in COMMANDS.split("\n")[1:-1]:
        words = [
            str(tmp_path / each) if each in ("AUDIT", "EXPORT") else each for each in line.split()
        ]
        words = ["127.0.0.1:1" if each == "NOBODY" else each for each in words]
        name = next(each for each in with_metadata(main) if line.startswith(each))
        done = bkbox(*words, "--metadata", cluster.uri, check=False, input="x\n", timeout=60)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == 0 or name in MAY_FAIL, (line, done)
        run.add(name)
    assert run | ELSEWHERE == {*with_metadata(main)}


# ---- configurations -----------------------------------------------------------------------------


def test_the_configuration_of_a_pulsar_bookie(oxia: Oxia, tmp_path: Path) -> None:
    uri = oxia.uri(oxia.new_namespace())
    asyncio.run(init_cluster(uri))
    (tmp_path / "a").mkdir()
    java = tmp_path / "bookkeeper.conf"
    java.write_text(
        f"ledgerDirectories={tmp_path}/a\nadvertisedAddress=127.0.0.1\nbookiePort=3181\n"
        f"metadataServiceUri={uri}\nautoRecoveryDaemonEnabled=true\n"
    )
    made = tmp_path / "bookie.toml"
    bkbox("config", "import", str(java), "--to", str(made))
    assert f'metadata = "{uri}"' in made.read_text()
    bkbox("config", "validate", "--config", str(made))
    java.write_text(java.read_text().replace(uri, f"{uri}?configFilePath=/oxia.properties"))
    refused = bkbox("config", "import", str(java), check=False)
    assert refused.returncode != 0
    assert "configFilePath" in refused.stderr


# ---- TLS and tokens -----------------------------------------------------------------------------


def test_tls_and_a_token(tmp_path: Path) -> None:
    authority, strangers = Authority(tmp_path), Authority(tmp_path, "strangers")
    server, client = authority.issue("server"), authority.issue("client")
    token = secret_file(tmp_path / "token", "a-secret-token\n")
    wrong = secret_file(tmp_path / "wrong", "another-token\n")
    secured = Oxia(
        environment={
            "OXIA_TLS": f"{server.certificate}:{server.key}:{authority.file}",
            "OXIA_TOKEN": "a-secret-token",
        }
    )
    plain = secured.uri(f"1-tls-{os.getpid()}")
    files = {
        "token_file": token,
        "tls_ca_file": authority.file,
        "tls_certificate_file": client.certificate,
        "tls_key_file": client.key,
    }

    def uri(**changes: Path) -> str:
        return f"{plain}?" + "&".join(f"{key}={path}" for key, path in (files | changes).items())

    async def scenario() -> None:
        await init_cluster(uri())
        async with await connect(uri()) as store:
            assert await store.new_ledger_id() == 1
        with pytest.raises(MetadataError, match="no such token"):
            await connect(uri(token_file=wrong))
        for no_way in (plain, uri(tls_ca_file=strangers.file)):
            with pytest.raises(MetadataUnavailableError, match="cannot be reached"):
                await connect(no_way, wait_s=1.0)
        with pytest.raises(ConfigError, match=r"missing cannot be read"):
            await connect(uri(tls_key_file=tmp_path / "missing"))
        wrong.chmod(0o644)
        with pytest.raises(ConfigError, match="mode 0644"):
            await connect(uri(token_file=wrong))

    try:
        asyncio.run(scenario())
    finally:
        secured.close()
