"""``bkbox debug bundle`` on a real bookie, with secrets planted wherever something could pick them up."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox

PLANTED = "pl4nted-s3cret"


def bundle(
    bookie: BookieProcess, *words: str, environment: dict[str, str] | None = None
) -> dict[str, str]:
    """The files of a bundle, and its names without the folder."""
    to = bookie.root / "bundle.tar.gz"
    options = ("--config", str(bookie.config), "--to", str(to), "--unit", "")
    bkbox("debug", "bundle", *options, *words, env={**os.environ, **(environment or {})})
    assert to.stat().st_mode & 0o777 == 0o600
    found = {}
    with tarfile.open(to) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read().decode()
    to.unlink()
    return found


def test_nothing_that_is_secret_is_in_it(make_bookie: MakeBookie, tmp_path: Path) -> None:
    bookie = make_bookie()
    text = bookie.config.read_text()
    bookie.config.write_text(f"# password = {PLANTED}-comment\n{text}")
    secret_environment = {
        "BKBOX_LEDGER_PASSWORD": f"{PLANTED}-ledger",
        "MY_TOKEN": f"{PLANTED}-variable",
    }
    bookie.start(environment=secret_environment)
    (
        bookie.disks[0] / f"token={PLANTED}-name"
    ).touch()  # a name of a file, which the doctor repeats
    log = tmp_path / "bookie.log"
    log.write_text(
        bookie.stderr
        + f"opened ledger 7 with password={PLANTED}-log\n"
        + f"connected to zk://me:{PLANTED}-uri@zk1:2181/ledgers\n"
        + f"request of Authorization: Bearer {PLANTED}-header\n"
        + f"the value itself: {PLANTED}-ledger, and {PLANTED}-variable\n"
        + f"-----BEGIN PRIVATE KEY-----\n{PLANTED}-key\n-----END PRIVATE KEY-----\n"
    )
    files = bundle(bookie, "--log", str(log), environment=secret_environment)
    assert {name for name, held in files.items() if PLANTED in held} == set()
    assert "opened ledger 7 with" in files["logs/0-bookie.log"]
    assert {*files} >= {
        *("status.json", "config.json", "doctor.json", "cookies.json", "versions.json"),
        *("stages.json", "threads.json", "jobs.json", "host.json", "manifest.json"),
    }
    assert json.loads(files["config.json"])["disks"]["value"] == [str(d) for d in bookie.disks]
    processes = json.loads(files["threads.json"])
    assert {each["role"] for each in processes} >= {"supervisor", "frontend", "worker"}
    assert all(each["threads"] for each in processes)
    assert set(json.loads(files["stages.json"])) == {str(disk) for disk in bookie.disks}


def test_a_bookie_that_is_down_or_broken(make_bookie: MakeBookie, tmp_path: Path) -> None:
    bookie = make_bookie()
    (tmp_path / "metadata.db").unlink()
    files = bundle(bookie, "--log", str(tmp_path / "none.log"))
    manifest = json.loads(files["manifest.json"])
    assert {"status.json", "cookies.json", "logs/0-none.log"} <= set(manifest["missing"])
    assert "doctor.json" in files


def test_dry_run_and_a_file_that_is_there(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    to = bookie.root / "x.tar.gz"
    words = ("debug", "bundle", "--config", str(bookie.config), "--to", str(to), "--unit", "")
    said = json.loads(bkbox(*words, "--dry-run", "-o", "json").stdout)
    assert not to.exists()
    assert said["written"] is None
    assert "config.json" in said["files"]
    to.write_text("mine")
    done = bkbox(*words, check=False)
    assert done.returncode == 1
    assert to.read_text() == "mine"
    assert "exists already" in done.stderr
