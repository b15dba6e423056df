"""What differs between two configurations, what of it a running bookie takes over, and what is said of a key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.config import changes as config_changes
from bkbox.config import load as configuration
from bkbox.config.schema import SCHEMA, Config, is_live
from bkbox.errors import ConfigError

BASE = 'listen = "10.0.0.5:3181"\nmetadata = "sqlite:/m.db"\ndisks = ["/data/a"]\n'


def made(tmp_path: Path, more: str = "") -> Config:
    file = tmp_path / "b.toml"
    file.write_text(BASE + more)
    return configuration.load(file, {})


def test_live_changes_are_made_and_say_where_they_are_from(tmp_path: Path) -> None:
    before = made(tmp_path)
    after = made(tmp_path, 'disk_usage_max = 0.5\nlog_level = "debug"\n')
    changes = config_changes.between(before, after)
    assert [(c.key, c.before, c.after, c.live) for c in changes] == [
        ("disk_usage_max", 0.95, 0.5, True),
        ("log_level", "info", "debug", True),
    ]
    changed = config_changes.applied(before, after, changes)
    assert changed.values() == after.values()
    assert changed.provenance == after.provenance


def test_one_fixed_key_and_nothing_changes(tmp_path: Path) -> None:
    before = made(tmp_path)
    after = made(tmp_path, 'disk_usage_max = 0.5\nack_after = "write"\ncheckpoint_bytes = 5000\n')
    with pytest.raises(ConfigError) as caught:
        config_changes.applied(before, after, config_changes.between(before, after))
    assert caught.value.problems == [
        f"{tmp_path}/b.toml:5: ack_after cannot change while the bookie runs: restart it, or put back 'sync'",
        f"{tmp_path}/b.toml:6: checkpoint_bytes cannot change while the bookie runs: restart it, or put back 268435456",
        "nothing was changed",
    ]


def test_what_binds_disks_and_names_never_changes_while_it_runs() -> None:
    fixed = {
        "listen",
        "advertised_host",
        "bookie_id",
        "metadata",
        "disks",
        "journal",
        "ack_after",
        "run_dir",
    }
    assert not any(is_live(SCHEMA[key]) for key in fixed)


@pytest.mark.parametrize("key", SCHEMA)
def test_every_key_is_explained(key: str) -> None:
    done = CliRunner().invoke(main, ["config", "explain", key, "-o", "json"])
    said = json.loads(done.stdout)
    assert said["key"] == key
    assert said["variable"] == f"BKBOX_{key.upper()}"
    assert said["meaning"].endswith(".")
    assert said["value"]
    assert ("reload" in said["changes"]) == is_live(SCHEMA[key])


def test_explain_what_it_is_here_and_what_it_is_not(tmp_path: Path) -> None:
    made(tmp_path, "disk_usage_max = 0.5\n")
    words = ["config", "explain", "disk_usage_max", "--config", str(tmp_path / "b.toml")]
    said = json.loads(CliRunner().invoke(main, [*words, "-o", "json"]).stdout)
    assert (said["here"], said["from"]) == (0.5, f"{tmp_path}/b.toml:4")
    done = CliRunner().invoke(main, ["config", "explain", "disk_usage"])
    assert done.exit_code == ExitCode.USAGE
    assert "unknown key disk_usage; did you mean disk_usage_max?" in done.stderr


def test_diff_while_nothing_runs(tmp_path: Path) -> None:
    made(tmp_path, "disk_usage_max = 0.5\nstop_timeout_s = 30.0\n")
    done = CliRunner().invoke(
        main, ["config", "diff", "--config", str(tmp_path / "b.toml"), "-o", "json"]
    )
    rows = json.loads(done.stdout)
    assert [row["key"] for row in rows if row["key"] in SCHEMA] == [
        "listen", "metadata", "disks", "disk_usage_max",
    ]  # fmt: skip
    assert rows[-1]["running"] is None
    assert "no bookie is running" in done.stderr
