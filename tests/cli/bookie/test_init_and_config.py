"""init writes what the other commands read; config says what is wrong and where a value is from."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.config import load as configuration
from tests.harness.processes import free_port


@pytest.fixture(autouse=True)
def assigned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def bkbox(*words: str, stdin: str = "") -> Result:
    result = CliRunner().invoke(main, words, input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


LISTEN = f"127.0.0.1:{free_port()}"
"""Nothing else on the host may listen there: ``config validate`` tries it."""
INIT = (
    *("init", "--config", "etc/bookie.toml", "--disk", "disk0", "--disk", "disk1"),
    *("--metadata", "sqlite:cluster.db", "--listen", LISTEN),
)


def test_init_writes_what_run_reads(tmp_path: Path) -> None:
    done = bkbox(*INIT, "--set", "ack_after=write", "--set", "checkpoint_bytes=8192")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    assert f"bkbox run --config {tmp_path}/etc/bookie.toml" in done.stderr
    config = configuration.load(Path("etc/bookie.toml"), {})
    assert config.disks == (tmp_path / "disk0", tmp_path / "disk1")
    assert config.metadata == f"sqlite:{tmp_path}/cluster.db"
    assert config.listen == config.bookie_id == LISTEN
    assert (config.ack_after, config.checkpoint_bytes, config.journal) == ("write", 8192, None)
    assert bkbox("cookie", "verify", "--config", "etc/bookie.toml").stdout == "cookies match\n"


def test_init_with_a_journal(tmp_path: Path) -> None:
    assert bkbox(*INIT, "--journal", "log", "--set", "ack_after=journal").exit_code == 0
    assert configuration.load(Path("etc/bookie.toml"), {}).journal == tmp_path / "log"


def test_init_keeps_a_configuration_that_is_there() -> None:
    Path("etc").mkdir()
    Path("etc/bookie.toml").write_text("mine")
    done = bkbox(*INIT)
    assert done.exit_code == ExitCode.USAGE
    assert done.stderr.startswith("error: etc/bookie.toml exists already")
    assert Path("etc/bookie.toml").read_text() == "mine"
    assert not Path("disk0").exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--set", "ack_after=later"], "ack_after has to be one of"),
        (["--set", "ack_aftr=sync"], "did you mean ack_after"),
        (["--set", "listen=1.2.3.4:5"], "listen is given by --listen"),
        (["--set", "ack_after=journal"], "needs journal"),
        (["--disk", "disk0/inner"], "lies within"),
    ],
)
def test_an_init_that_cannot_work_leaves_no_configuration(more: list[str], says: str) -> None:
    done = bkbox(*INIT, *more)
    assert done.exit_code == ExitCode.USAGE
    assert says in done.stderr
    assert not Path("etc/bookie.toml").exists()


def test_init_refuses_a_disk_that_holds_something() -> None:
    Path("disk1").mkdir()
    Path("disk1/photo.jpg").write_text("precious")
    done = bkbox(*INIT)
    assert done.exit_code == ExitCode.FAILED
    assert "disk1 is not empty" in done.stderr
    assert not Path("etc/bookie.toml").exists()
    assert Path("disk1/photo.jpg").read_text() == "precious"


def test_init_refuses_a_known_bookie_and_names_what_to_run() -> None:
    assert bkbox(*INIT).exit_code == 0
    done = bkbox(*INIT)
    assert done.exit_code == ExitCode.FAILED
    assert f"bkbox cookie repair --config {Path.cwd()}/etc/bookie.toml" in done.stderr
    assert Path("etc/bookie.toml").exists(), (
        "the configuration of the first init is not its to remove"
    )


def test_validate_reports_every_problem_with_its_line() -> None:
    Path("b.toml").write_text('listen = "x"\nlisten_port = 3\n')
    done = bkbox("config", "validate", "--config", "b.toml")
    assert done.exit_code == ExitCode.USAGE
    assert "b.toml:1: " in done.stdout
    assert "b.toml:2: unknown key listen_port" in done.stdout
    as_json = bkbox("config", "validate", "--config", "b.toml", "-o", "json")
    assert as_json.exit_code == ExitCode.USAGE
    assert json.loads(as_json.stdout) == done.stdout.splitlines()


def test_validate_a_good_one() -> None:
    assert bkbox(*INIT).exit_code == 0
    done = bkbox("config", "validate", "--config", "etc/bookie.toml", "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])


def test_show_says_where_a_value_is_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bkbox(*INIT).exit_code == 0
    monkeypatch.setenv("BKBOX_LOG_LEVEL", "debug")
    shown = json.loads(bkbox("config", "show", "--config", "etc/bookie.toml", "-o", "json").stdout)
    assert shown["ack_after"] == {"value": "sync", "from": "default"}
    assert shown["log_level"]["from"] == "environment variable BKBOX_LOG_LEVEL"
    assert shown["disks"]["value"] == [os.path.abspath("disk0"), os.path.abspath("disk1")]
    table = bkbox("config", "show", "--config", "etc/bookie.toml").stdout
    assert "environment variable BKBOX_LOG_LEVEL" in table


@pytest.mark.parametrize("command", [["status"], ["run"], ["cookie", "show"], ["index", "rebuild"]])
def test_a_configuration_that_is_not_there(command: list[str]) -> None:
    done = bkbox(*command, "--config", "none.toml")
    assert done.exit_code == ExitCode.USAGE
    assert done.stderr.startswith("error: ")
    assert "none.toml" in done.stderr
