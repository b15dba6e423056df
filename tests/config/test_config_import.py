"""bk_server.conf becomes a configuration of bkbox, and no key of it is lost without a word."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.config import load as configuration
from bkbox.config.java_import import convert
from bkbox.config.java_properties import parse
from bkbox.errors import ConfigError
from tests.harness.documents import document

USUAL = """\
bookiePort = 3182
advertisedAddress: bookie-1.example.com
ledgerDirectories=/data/a,\\
    /data/b
journalDirectories=/nvme/journal
metadataServiceUri=zk+hierarchical://zk1:2181;zk2:2181/ledgers
"""


def values_of(text: str, host: str = "") -> dict[str, object]:
    return dict(convert(parse(text, "bk.conf"), "bk.conf", host).values)


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        values_of(text)
    return caught.value.problems


def command(*words: str) -> Result:
    return CliRunner().invoke(main, ["config", "import", *words])


def test_a_usual_one() -> None:
    assert values_of(USUAL) == {
        "listen": "0.0.0.0:3182",
        "advertised_host": "bookie-1.example.com",
        "metadata": "zk+hierarchical://zk1:2181;zk2:2181/ledgers",
        "disks": ["/data/a", "/data/b"],
        "ack_after": "journal",
        "journal": "/nvme/journal",
    }


@pytest.mark.parametrize(
    ("lines", "ack_after"),
    [
        ("journalWriteData=true\njournalSyncData=true", "journal"),
        ("journalWriteData=false", "write"),
        ("journalSyncData=false", "write"),
    ],
)
def test_what_an_acknowledgement_promises(lines: str, ack_after: str) -> None:
    found = values_of(USUAL + lines)
    assert found["ack_after"] == ack_after
    assert ("journal" in found) == (ack_after == "journal")


def test_without_a_journal_the_default_promises_as_much() -> None:
    text = USUAL.replace("journalDirectories=/nvme/journal\n", "journalWriteData=true\n")
    assert {"ack_after", "journal"} & values_of(text).keys() == set()


@pytest.mark.parametrize(
    ("lines", "uri"),
    [
        ("zkServers=zk1,zk2:2182\nzkLedgersRootPath=/bk", "zk://zk1:2181;zk2:2182/bk"),
        ("zkServers=zk1", "zk://zk1:2181/ledgers"),
        ("zkServers=[::1]", "zk://[::1]:2181/ledgers"),
        (
            "zkServers=zk1\nledgerManagerType=longhierarchical",
            "zk+longhierarchical://zk1:2181/ledgers",
        ),
        (
            "zkServers=zk1\nledgerManagerFactoryClass=org.apache.bookkeeper.meta.FlatLedgerManagerFactory",
            "zk+flat://zk1:2181/ledgers",
        ),
        ("metadataServiceUri=zk+null://zk1,zk2/a/b", "zk+null://zk1:2181;zk2:2181/a/b"),
        ("metadataServiceUri=zk://zk1:1/l\nzkServers=other", "zk://zk1:1/l"),
        (
            "metadataServiceUri=metadata-store:zk:zk1;zk2:1/pulsar",
            "metadata-store:zk:zk1:2181,zk2:1/pulsar",
        ),
        ("metadataServiceUri=metadata-store:zk1", "metadata-store:zk:zk1:2181"),
        (
            "metadataServiceUri=metadata-store:oxia://oxia.example.com:6648/bookies",
            "metadata-store:oxia://oxia.example.com:6648/bookies",
        ),
    ],
)
def test_the_metadata_store(lines: str, uri: str) -> None:
    text = f"ledgerDirectories=/data/a\nadvertisedAddress=b\n{lines}"
    assert values_of(text)["metadata"] == uri


def test_other_keys_with_a_counterpart() -> None:
    found = values_of(
        f"{USUAL}diskUsageThreshold=0.9\nlogSizeLimit=1073741824\nnettyMaxFrameSizeBytes=5242880\n"
        "dataIntegrityStampMissingCookies=true\nreplicationRateByBytes=-1\nbookieId=b1\n"
    )
    assert found["disk_usage_max"] == 0.9
    assert (found["segment_bytes_max"], found["frame_bytes_max"]) == (1 << 30, 5 << 20)
    assert (found["auto_fix_cookies"], found["bookie_id"]) == (True, "b1")
    assert "jobs_network_bytes_per_second" not in found, "Java's -1 is no bound"


def test_times_and_shares_are_turned_into_ours() -> None:
    found = values_of(
        f"{USUAL}gcWaitTime=900000\nmajorCompactionThreshold=0.8\nopenLedgerRereplicationGracePeriod=15000\n"
        "autoRecoveryDaemonEnabled=true\nlostBookieRecoveryDelay=300\ndiskUsageLwmThreshold=0.9\n"
    )
    assert (found["gc_interval_s"], found["autorecovery_open_ledger_grace_s"]) == (900.0, 15.0)
    assert (found["compaction_garbage_ratio"], found["disk_usage_resume"]) == (0.2, 0.9)
    assert (found["autorecovery_enabled"], found["autorecovery_lost_bookie_delay_s"]) == (True, 300)
    off = values_of(f"{USUAL}majorCompactionThreshold=-1\ndiskUsageLwmThreshold=0.95\n")
    assert {"compaction_garbage_ratio", "disk_usage_resume"} & off.keys() == set()


def test_every_key_is_accounted_for() -> None:
    more = "gcMetadataOpRateLimit=1\nnumReadWorkerThreads=8\ntlsKeyStore=x\nzkTimeout=10000\nofTheFuture=1\n"
    found = convert(parse(USUAL + more, "bk.conf"), "bk.conf", "")
    assert [each.property.key for each in found.remarks] == [
        "bookiePort",
        "advertisedAddress",
        "ledgerDirectories",
        "journalDirectories",
        "metadataServiceUri",
        "gcMetadataOpRateLimit",
        "numReadWorkerThreads",
        "tlsKeyStore",
        "zkTimeout",
        "ofTheFuture",
    ]
    assert [each.imported for each in found.remarks] == [True] * 5 + [False] * 5
    assert found.remarks[-1].text == "bkbox does not know this key"
    assert all(each.text for each in found.remarks)


def test_all_problems_at_once_with_their_lines() -> None:
    assert problems_of("bookiePort=x\n\ndiskUsageThreshold=much\njournalWriteData=maybe\n") == [
        "bk.conf: advertisedAddress is missing: say with --host under which name or address the others "
        "reach the bookie",
        "bk.conf:1: bookiePort: listen here '0.0.0.0:x': has to be HOST:PORT, for example 10.0.0.5:3181",
        "bk.conf: neither metadataServiceUri nor zkServers is there",
        "bk.conf: ledgerDirectories is missing",
        "bk.conf:4: journalWriteData: 'maybe' is neither true nor false",
        "bk.conf:3: diskUsageThreshold: 'much' is not what it can be",
    ]
    (problem,) = problems_of(USUAL.replace("zk+hierarchical", "etcd+hierarchical"))
    assert problem.startswith("bk.conf:6: metadataServiceUri: metadata here 'etcd")


def test_what_comes_out_is_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "bk_server.conf"
    file.write_text(USUAL + "zkTimeout=10000\n")
    made = tmp_path / "bookie.toml"
    done = command(str(file), "--to", str(made))
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"{file}:7: zkTimeout: no counterpart: " in done.stderr
    assert f"# {file}:7: zkTimeout: no counterpart: " in made.read_text()
    loaded = configuration.load(made, {})
    assert loaded.bookie_id == "bookie-1.example.com:3182"
    assert loaded.journal == Path("/nvme/journal")
    printed = command(str(file))
    assert tomllib.loads(printed.stdout) == tomllib.loads(made.read_text())


def test_all_of_it_as_one_document(tmp_path: Path) -> None:
    file = tmp_path / "bk_server.conf"
    file.write_text(USUAL + "zkTimeout=10000\n")
    made = tmp_path / "bookie.toml"
    done = command(str(file), "--to", str(made), "-o", "json")
    said = document(done.stdout, "config", "import")
    assert said["settings"] == tomllib.loads(made.read_text())
    assert said["written"] == str(made)
    (left_out,) = said["no_counterpart"]
    assert (left_out["key"], left_out["line"]) == ("zkTimeout", 7)
    assert f"{file}:7: zkTimeout: no counterpart: {left_out['text']}\n" in done.stderr
    assert [each["line"] for each in said["taken_over"]] == [1, 2, 3, 5, 6]
    printed = yaml.safe_load(command(str(file), "-o", "yaml").stdout)
    assert printed == said | {"written": None}


def test_an_import_that_cannot_work(tmp_path: Path) -> None:
    file = tmp_path / "bk_server.conf"
    made = tmp_path / "bookie.toml"
    file.write_text(USUAL.replace("/nvme/journal", "/data/a/journal"))
    done = command(str(file), "--to", str(made))
    assert done.exit_code == ExitCode.USAGE
    assert "/data/a/journal lies within /data/a" in done.stderr
    assert not made.exists()
    assert command(str(file), "-o", "json").stdout == ""
    made.write_text("mine")
    file.write_text(USUAL)
    done = command(str(file), "--to", str(made))
    assert (done.exit_code, made.read_text()) == (ExitCode.USAGE, "mine")
    file.write_bytes(b"\xff")
    assert "byte 0 is not UTF-8" in command(str(file)).stderr
    assert "cannot be read" in command(str(tmp_path / "none")).stderr
