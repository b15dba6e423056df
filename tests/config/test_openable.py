"""`config validate` and `doctor` find what a start would refuse: they open what a start opens."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from bkbox.cli.main import main
from tests.harness.processes import BookieProcess, free_port, put_keys

TOKEN = "t" * 32


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[BookieProcess]:
    made = BookieProcess(tmp_path, f"sqlite:{tmp_path}/metadata.db").init(disks=1)
    try:
        yield made
    finally:
        made.ensure_gone()


def secret(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def validated(bookie: BookieProcess) -> list[str]:
    line = ["config", "validate", "--config", str(bookie.config), "-o", "json"]
    done = CliRunner().invoke(main, line)
    found = json.loads(done.stdout)
    assert done.exit_code == (2 if found else 0)
    assert isinstance(found, list)
    return found


def diagnosed(bookie: BookieProcess) -> list[str]:
    done = CliRunner().invoke(main, ["doctor", "--config", str(bookie.config), "-o", "json"])
    return [
        each["why"] for each in json.loads(done.stdout)["findings"] if each["verdict"] == "fail"
    ]


def refused(bookie: BookieProcess) -> str:
    """What `run` says."""
    bookie.start(wait=False)
    assert bookie.process is not None
    assert bookie.process.wait(60) != 0
    bookie.ensure_gone()
    return bookie.stderr


def test_a_good_one(bookie: BookieProcess, tmp_path: Path) -> None:
    """Relative paths count from the folder of the file, for all who read it."""
    secret(bookie.root / "token", TOKEN)
    put_keys(bookie, http_listen=f"127.0.0.1:{free_port()}", http_token_file="token", run_dir=".")
    assert validated(bookie) == []
    bookie.start()
    assert validated(bookie) == [], "the addresses are its own"
    assert diagnosed(bookie) == []
    assert bookie.stop() == 0


WRONG: dict[str, dict[str, object]] = {
    "http_token_file": {"http_listen": "127.0.0.1:0", "http_token_file": "token"},
    "http_read_token_file": {
        "http_listen": "127.0.0.1:0",
        "http_token_file": "good",
        "http_read_token_file": "open",
    },
    "auth_users_file": {"auth": ["token"], "auth_users_file": "users"},
    "tls_certificate_file": {
        "tls": "required",
        "tls_certificate_file": "certificate",
        "tls_key_file": "good",
    },
    "run_dir": {"run_dir": "nowhere"},
    "http_listen": {"http_listen": "127.0.0.1:TAKEN", "http_token_file": "good"},
    "listen": {"listen": "127.0.0.1:TAKEN", "bookie_id": "BOOKIE"},
}
"""By the key that is to be named: files, folders and addresses that a start cannot use."""


@pytest.mark.parametrize("key", WRONG)
def test_what_a_start_refuses_is_found_before(bookie: BookieProcess, key: str) -> None:
    secret(bookie.root / "good", TOKEN)
    secret(bookie.root / "open", TOKEN, 0o644)
    secret(bookie.root / "users", "no colon")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        used = str(other.getsockname()[1])
        keys = {
            name: str(value).replace("TAKEN", used).replace("BOOKIE", bookie.bookie_id)
            if isinstance(value, str)
            else value
            for name, value in WRONG[key].items()
        }
        put_keys(bookie, **keys)
        (said,) = validated(bookie)
        assert said.startswith(f"{bookie.config}:")
        line = int(said.removeprefix(f"{bookie.config}:").partition(":")[0])
        assert bookie.config.read_text().splitlines()[line - 1].startswith(f"{key} =")
        assert any(why in said for why in diagnosed(bookie))
        named = keys[key]
        assert str(named if isinstance(named, str) else keys["auth_users_file"]) in refused(bookie)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"peers_auth": "token", "peers_user": "me", "peers_secret_file": "s"}, "s cannot be read"),
        ({"topology_script": "racks.sh"}, "racks.sh: no such file"),
        ({"rack_map": "racks.json"}, "racks.json: No such file"),
        ({"metadata": "zk://127.0.0.1:1/l?secret_file=/no/such/file"}, "/no/such/file cannot be"),
        ({"metadata": "sqlite:other.db"}, "there is no metadata store"),
        ({"journal": "log", "ack_after": "journal"}, "log is not there"),
        ({"disks": ["disk1", "disk9"]}, "disk9 is not there"),
    ],
)
def test_what_a_bookie_would_use_later_is_tried_too(
    bookie: BookieProcess, keys: dict[str, object], says: str
) -> None:
    put_keys(bookie, **keys)
    (said,) = validated(bookie)
    assert says in said
    assert next(iter(keys)) in said or "peers_secret_file" in said


def test_problems_come_in_the_order_of_lines(bookie: BookieProcess) -> None:
    put_keys(
        bookie,
        topology_script="racks.sh",
        frame_bytes_max=1 << 30,
        connection_inflight_bytes_max=1 << 20,
        unheard_of=1,
        ack_after="journal",
        http_listen="127.0.0.1:1",
    )
    found = validated(bookie)
    lines = [int(each.removeprefix(f"{bookie.config}:").partition(":")[0]) for each in found]
    assert len(lines) >= 4
    assert lines == sorted(lines)
