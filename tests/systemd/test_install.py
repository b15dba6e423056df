"""`bkbox systemd install`: what goes where, what it refuses, and that a dry run is dry."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner, Result

from bkbox.cli.bookie import systemd
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main

CONFIG = """\
listen = "10.0.0.5:3181"
metadata = "sqlite:/srv/meta/cluster.db"
disks = ["/data/a", "/data/50% \\"b\\" "]
journal = "/nvme/journal"
ack_after = "journal"
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if bkbox were installed in /opt."""
    program = Path("/opt/bkbox/bin/bkbox")
    monkeypatch.setattr(systemd, "_program", lambda: program)
    return program


def install(root: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["systemd", "install", "--root", str(root), *words])


def put_config(root: Path, name: str, text: str = CONFIG) -> None:
    (root / "etc/bkbox").mkdir(parents=True, exist_ok=True)
    (root / "etc/bkbox" / f"{name}.toml").write_text(text)


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


BASE = {
    "etc/systemd/system/bkbox.service",
    "etc/systemd/system/bkbox@.service",
    "etc/sysusers.d/bkbox.conf",
    "etc/tmpfiles.d/bkbox.conf",
}


def test_without_a_configuration(tmp_path: Path, installed: Path) -> None:
    done = install(tmp_path)
    assert done.exit_code == 0, done.output
    assert files(tmp_path) == BASE
    assert f"{tmp_path}/etc/bkbox/bkbox.toml is not there yet" in done.stderr
    unit = (tmp_path / "etc/systemd/system/bkbox.service").read_text()
    assert f"ExecStart={installed} run --config /etc/bkbox/bkbox.toml" in unit
    assert "/usr/bin/bkbox" not in unit


def test_the_service_may_write_what_its_configuration_names(tmp_path: Path) -> None:
    put_config(tmp_path, "bkbox")
    assert install(tmp_path).exit_code == 0
    drop_in = tmp_path / "etc/systemd/system/bkbox.service.d/10-paths.conf"
    assert drop_in.read_text().splitlines()[1:] == [
        "[Unit]",
        'RequiresMountsFor="/data/a" "/data/50%% \\"b\\" " "/nvme/journal"',
        "",
        "[Service]",
        'ReadWritePaths="-/data/a" "-/data/50%% \\"b\\" " "-/nvme/journal" "-/srv/meta"',
    ]


def test_another_bookie_of_the_host(tmp_path: Path) -> None:
    zookeeper = CONFIG.replace("sqlite:/srv/meta/cluster.db", "zk://zk1:2181/ledgers")
    put_config(tmp_path, "second", zookeeper + 'run_dir = "/run/bkbox/second"\n')
    done = install(tmp_path, "--config", "/etc/bkbox/second.toml")
    assert "systemctl enable --now bkbox@second.service" in done.stderr
    drop_in = tmp_path / "etc/systemd/system/bkbox@second.service.d/10-paths.conf"
    assert drop_in.read_text().endswith('"-/nvme/journal" "-/run/bkbox/second"\n')


def test_a_dry_run_is_dry_and_says_it_all(tmp_path: Path) -> None:
    put_config(tmp_path, "bkbox")
    before = files(tmp_path)
    done = install(tmp_path, "--dry-run", "-o", "json")
    assert files(tmp_path) == before
    said = json.loads(done.stdout)
    assert {item["path"] for item in said["files"]} == {
        str(tmp_path / name) for name in (*BASE, "etc/systemd/system/bkbox.service.d/10-paths.conf")
    }
    assert {item["state"] for item in said["files"]} == {"new"}
    assert install(tmp_path).exit_code == 0
    for item in said["files"]:
        assert Path(item["path"]).read_text() == item["text"]


def test_again_changes_what_changed(tmp_path: Path) -> None:
    put_config(tmp_path, "bkbox")
    assert install(tmp_path).exit_code == 0
    unit = tmp_path / "etc/systemd/system/bkbox.service"
    untouched = unit.stat().st_mtime_ns
    put_config(tmp_path, "bkbox", CONFIG.replace("/data/a", "/data/z"))
    said = json.loads(install(tmp_path, "-o", "json").stdout)
    states = {Path(item["path"]).name: item["state"] for item in said["files"]}
    assert states.pop("10-paths.conf") == "changed"
    assert set(states.values()) == {"unchanged"}
    assert unit.stat().st_mtime_ns == untouched


def test_what_a_package_has_put_there_is_not_covered(tmp_path: Path) -> None:
    put_config(tmp_path, "bkbox")
    packaged = tmp_path / "lib/systemd/system/bkbox.service"
    packaged.parent.mkdir(parents=True)
    packaged.write_text("[Service]\n")
    assert install(tmp_path).exit_code == 0
    assert not (tmp_path / "etc/systemd/system/bkbox.service").exists()
    assert (tmp_path / "etc/systemd/system/bkbox.service.d/10-paths.conf").exists()
    assert packaged.read_text() == "[Service]\n"


def test_on_the_host_itself_programs_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = CliRunner().invoke(main, ["systemd", "install", "--dry-run"])
    assert done.exit_code == 0
    assert "would run: systemd-sysusers /etc/sysusers.d/bkbox.conf" in done.stderr
    assert "would run: systemctl daemon-reload" in done.stderr
    done = CliRunner().invoke(main, ["systemd", "install"])
    assert done.exit_code == ExitCode.FAILED
    assert "run this as root, or look with --dry-run" in done.stderr
    assert not Path("/etc/systemd/system/bkbox.service").exists()


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("/srv/bookie.toml", "the services read /etc/bkbox/NAME.toml: put it there"),
        ("/etc/bkbox/bookie.conf", "the services read /etc/bkbox/NAME.toml: put it there"),
        ("/etc/bkbox/a b.toml", "'a b' cannot be a part of a service's name"),
    ],
)
def test_a_configuration_in_the_wrong_place(tmp_path: Path, file: str, says: str) -> None:
    done = install(tmp_path, "--config", file)
    assert done.exit_code == ExitCode.USAGE
    assert says in done.stderr
    assert files(tmp_path) == set()


def test_a_configuration_with_problems_installs_nothing(tmp_path: Path) -> None:
    put_config(tmp_path, "bkbox", "listen = 1\n")
    done = install(tmp_path)
    assert done.exit_code == ExitCode.USAGE
    assert files(tmp_path) == {"etc/bkbox/bkbox.toml"}


def test_a_program_that_services_do_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    with TemporaryDirectory(dir="/tmp") as hidden:  # tests may have their files elsewhere
        monkeypatch.setattr("sys.executable", f"{hidden}/python")
        Path(hidden, "bkbox").touch()
        done = install(tmp_path)
        assert done.exit_code == ExitCode.FAILED
        assert f"bkbox is installed in {hidden}, which services do not see" in done.stderr
        Path(hidden, "bkbox").unlink()
        assert "is not there: install bkbox" in install(tmp_path).stderr
