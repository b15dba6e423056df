"""A whole bookie with TLS, authentication and roles, and bkbox's client: what goes through, and what never does."""

from __future__ import annotations

import asyncio
import datetime
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from bkbox.client import connect
from bkbox.errors import BkboxError, ConfigError
from bkbox.supervisor import access_policy
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.waiting import wait_for
from tests.security.certificates import Authority, Pair, secret_file

SECRETS = {"bookkeeper": "sesame-opens-bookkeeper", "reader": "sesame-opens-reader"}


class Scene:
    """One secured bookie, and what clients need for it."""

    def __init__(self, folder: Path, make: MakeBookie) -> None:
        self.authority = Authority(folder / "authority")
        self.pair = self.authority.issue("bookie")
        self.users = secret_file(
            folder / "users", "".join(f"{name}:{secret}\n" for name, secret in SECRETS.items())
        )
        self.files = {name: secret_file(folder / name, text) for name, text in SECRETS.items()}
        self.folder = folder
        self._make = make

    def bookie(self, **settings: Any) -> BookieProcess:
        return self._make(
            disks=1,
            **{
                "tls": "required",
                "tls_certificate_file": self.pair.certificate,
                "tls_key_file": self.pair.key,
                "tls_ca_file": self.authority.file,
                "auth": "token;sasl",
                "auth_users_file": self.users,
                "peers_tls": "start",
                "peers_auth": "token",
                "peers_user": "bookkeeper",
                "peers_secret_file": self.files["bookkeeper"],
                **settings,
            },
        )

    def options(self, user: str = "bookkeeper", **changes: Any) -> dict[str, Any]:
        return {
            "tls": "start",
            "tls_ca_file": str(self.authority.file),
            "auth": "token",
            "auth_user": user,
            "auth_secret_file": str(self.files[user]),
            "connect_timeout_s": 3.0,
            "backoff_initial_s": 0.01,
            "backoff_max_s": 0.05,
            **changes,
        }


@pytest.fixture
def scene(tmp_path: Path, make_bookie: MakeBookie) -> Scene:
    return Scene(tmp_path, make_bookie)


def write_and_read(uri: str, options: dict[str, Any], count: int = 20) -> int:
    """Write a ledger and read it back; its id."""

    async def story() -> int:
        async with connect(uri, **options) as client:
            async with await client.create_ledger(1, 1, 1) as writer:
                for number in range(count):
                    await writer.append(b"%d" % number)
                ledger = writer.ledger_id
            reader = await client.open_ledger(ledger)
            found = [bytes(entry.payload) async for entry in reader.read(0, count - 1)]
            assert found == [b"%d" % number for number in range(count)]
            return int(ledger)

    return asyncio.run(story())


def fails(uri: str, options: dict[str, Any]) -> None:
    """Nothing can be written, and nothing was sent in the clear."""

    async def story() -> None:
        async with connect(uri, add_timeout_s=2.0, read_timeout_s=2.0, **options) as client:
            async with asyncio.timeout(20):
                with pytest.raises(BkboxError):
                    async with await client.create_ledger(1, 1, 1) as writer:
                        await writer.append(b"x")

    asyncio.run(story())


@pytest.mark.filterwarnings("ignore:ack quorum 1:UserWarning")
@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_through_both_ways_and_both_plugins(scene: Scene, protocol: str) -> None:
    bookie = scene.bookie().start()
    for tls, auth in (("start", "token"), ("direct", "sasl")):
        options = scene.options(tls=tls, auth=auth, protocol=protocol)
        write_and_read(bookie.metadata, options)
    assert bookie.status()["state"] == "running"
    assert bookie.stop() == 0


@pytest.mark.filterwarnings("ignore:ack quorum 1:UserWarning")
def test_what_a_client_does_not_go_on_with(scene: Scene) -> None:
    """No TLS, another authority, another name, an expired certificate, no proof, a wrong one."""
    bookie = scene.bookie().start()
    other = Authority(scene.folder / "other", "other")
    wrong = secret_file(scene.folder / "wrong", "not-the-secret-of-it")
    for changes in (
        {"tls": "off"},
        {"tls_ca_file": str(other.file)},
        {"tls": "direct", "tls_ca_file": str(other.file)},
        {"auth": "none", "auth_secret_file": None},
        {"auth_secret_file": str(wrong)},
        {"auth": "sasl", "auth_secret_file": str(wrong)},
    ):
        fails(bookie.metadata, scene.options(**changes))
    for hosts, lasts in ((["other.example"], 1), (["127.0.0.1"], -1)):
        pair = scene.authority.issue(
            "bookie", hosts, lasts=datetime.timedelta(days=lasts), file="next"
        )
        shutil.copy(pair.certificate, scene.pair.certificate)
        shutil.copy(pair.key, scene.pair.key)
        bkbox("config", "reload", "--config", str(bookie.config))
        fails(bookie.metadata, scene.options())
        if hosts == ["other.example"]:
            write_and_read(bookie.metadata, scene.options(tls_check_host_name=False))
    assert bookie.stop() == 0


@pytest.mark.filterwarnings("ignore:ack quorum 1:UserWarning")
def test_a_client_that_needs_tls_never_falls_back(
    scene: Scene, make_bookie: MakeBookie, caplog: pytest.LogCaptureFixture
) -> None:
    bookie = make_bookie(disks=1).start()
    for tls in ("start", "direct"):
        for auth in ("token", "none"):
            fails(bookie.metadata, scene.options(tls=tls, auth=auth))
    fails(bookie.metadata, scene.options(tls="off"))
    assert "offers no TLS, which this client needs" in caplog.text
    assert "it may not be what it says it is" in caplog.text
    assert bookie.status()["state"] == "running"


@pytest.mark.filterwarnings("ignore:ack quorum 1:UserWarning")
def test_certificates_and_users_are_read_anew_by_themselves(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert access_policy._CHECK_EVERY_S <= 5, "or this takes long"
    bookie = scene.bookie().start()
    write_and_read(bookie.metadata, scene.options())
    later = Authority(scene.folder / "later", "later")
    pair = later.issue("bookie")
    # One file after the other, as tools do it: in between they do not fit, and what was there stays in use.
    _replace(pair.certificate, scene.pair.certificate)
    write_and_read(bookie.metadata, scene.options())
    _replace(pair.key, scene.pair.key)
    wait_for(lambda: "were read anew" in bookie.stderr, "the new certificate", timeout=30)
    write_and_read(bookie.metadata, scene.options(tls_ca_file=str(later.file)))
    fails(bookie.metadata, scene.options())
    scene.users.write_text(f"reader:{SECRETS['reader']}\n")
    bookie.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    options = scene.options(tls_ca_file=str(later.file))
    wait_for(lambda: _is_refused(bookie.metadata, options), "the user to be unknown")
    assert bookie.stop() == 0


def _replace(source: Path, target: Path) -> None:
    """As tools replace certificates: a new file in the place of the old one."""
    beside = target.with_suffix(".new")
    shutil.copy(source, beside)
    os.replace(beside, target)


def _is_refused(uri: str, options: dict[str, Any]) -> bool:
    try:
        write_and_read(uri, {**options, "add_timeout_s": 2.0, "read_timeout_s": 2.0}, count=1)
    except BkboxError:
        return True
    return False


@pytest.mark.filterwarnings("ignore:ack quorum 1:UserWarning")
def test_roles_of_clients(scene: Scene) -> None:
    bookie = scene.bookie(roles="bookkeeper=write;reader=read").start()
    ledger = write_and_read(bookie.metadata, scene.options())
    fails(bookie.metadata, scene.options("reader"))

    async def story() -> None:
        async with connect(bookie.metadata, **scene.options("reader")) as client:
            reader = await client.open_ledger(ledger)
            assert (await anext(aiter(reader.read(0, 0)))).payload == b"0"

    asyncio.run(story())
    wait_for(lambda: "refused: add for 'token/reader'" in bookie.stderr, "the log of it")


@pytest.mark.filterwarnings("ignore:ack quorum 1:UserWarning")
def test_no_secret_is_shown_anywhere(scene: Scene) -> None:
    bookie = scene.bookie().start()
    write_and_read(bookie.metadata, scene.options())
    fails(bookie.metadata, scene.options("reader", auth_user="bookkeeper"))
    key = scene.pair.key.read_text().splitlines()[1]
    shown = bookie.stderr
    for command in (["config", "show"], ["status", "-o", "json"], ["config", "show", "--running"]):
        done = bkbox(*command, "--config", str(bookie.config), check=False)
        shown += done.stdout + done.stderr
    assert bookie.process is not None
    for process in (psutil.Process(bookie.process.pid), *bookie.children()):
        shown += " ".join(process.cmdline()) + " ".join(process.environ().values())
    for secret in (*SECRETS.values(), key):
        assert secret not in shown
    for worker in bookie.children("worker"):
        assert SECRETS["bookkeeper"].encode() not in _memory(worker.pid), (
            "a worker has seen a secret"
        )


def _memory(pid: int) -> bytes:
    """What a process has written into its memory."""
    found = bytearray()
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            area, rights, *_ = line.split()
            if not rights.startswith("rw") or "/memfd" in line:
                continue
            start, end = (int(part, 16) for part in area.split("-"))
            if end - start > 64 << 20:
                continue
            try:
                memory.seek(start)
                found += memory.read(end - start)
            except (OSError, ValueError, OverflowError):
                continue
    return bytes(found)


# ---- what a start refuses -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tls_key_file": "FOREIGN"}, "belong together"),
        ({"tls_key_file": "READABLE"}, "others than its owner may read it"),
        ({"tls_key_file": "/nowhere/key"}, "cannot be read"),
        ({"tls_certificate_file": "KEY"}, "cannot be used"),
        ({"auth_users_file": "EMPTY"}, "names no user"),
        ({"auth_users_file": "SHORT"}, "less than 8 characters"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_files_that_cannot_be_used(scene: Scene, settings: dict[str, str], said: str) -> None:
    foreign: Pair = scene.authority.issue("foreign")
    readable = scene.folder / "readable.key"
    shutil.copy(scene.pair.key, readable)
    readable.chmod(0o640)
    files = {
        "FOREIGN": foreign.key,
        "READABLE": readable,
        "KEY": scene.pair.key,
        "EMPTY": secret_file(scene.folder / "empty", "# nobody\n\n"),
        "SHORT": secret_file(scene.folder / "short", "bob:short\n"),
    }
    bookie = scene.bookie(**{key: files.get(name, name) for key, name in settings.items()})
    done = bkbox("run", "--config", str(bookie.config), check=False)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_client_options_that_cannot_be(tmp_path: Path) -> None:
    readable = tmp_path / "readable"
    readable.write_text("a-word-of-some-length")
    readable.chmod(0o644)
    uri = f"sqlite:{tmp_path / 'metadata.db'}"
    bkbox("cluster", "init", "--metadata", uri)

    async def open_client(**options: Any) -> None:
        async with connect(uri, **options):
            raise AssertionError("it was made")

    for options, said in (
        ({"auth": "token"}, "needs auth_user"),
        ({"auth": "token", "auth_user": "a", "auth_secret_file": str(readable)}, "may read it"),
        ({"auth": "token", "auth_user": "a", "auth_secret_file": "/no"}, "cannot be read"),
        ({"tls": "start", "tls_ca_file": "/no"}, "cannot be read"),
        ({"tls": "start", "tls_ca_file": str(readable)}, "no certificates"),
        ({"tls": "maybe"}, "not one of"),
        ({"tls": "start", "tls_certificate_file": str(readable)}, "belong together"),
    ):
        with pytest.raises(ConfigError, match=said):
            asyncio.run(open_client(**options))


# ---- commands -------------------------------------------------------------------------------------


def test_commands_use_the_file_of_the_client(scene: Scene) -> None:
    bookie = scene.bookie().start()
    file = scene.folder / "client.toml"
    file.write_text(
        'tls = "start"\ntls_ca_file = "authority/ca.pem"\n'
        'auth = "token"\nauth_user = "bookkeeper"\nauth_secret_file = "bookkeeper"\n'
    )
    environment = {**os.environ, "BKBOX_CLIENT_FILE": str(file)}
    write = ["ledger", "write", "--metadata", bookie.metadata, "-e", "1", "-w", "1", "-a", "1"]
    done = bkbox(*write, input="hello\n", env=environment)
    assert done.returncode == 0
    refused = bkbox(*write, input="hello\n", check=False)
    assert refused.returncode != 0
    for text, said in (
        ("user = 1", "unknown key user"),
        ('tls = "maybe"', "not one of off, start, direct"),
        ("tls = 1", "has to be a text"),
        ("tls", "is not TOML"),
        ('auth = "token"', "needs auth_user"),
    ):
        file.write_text(text)
        wrong = bkbox(*write, input="hello\n", env=environment, check=False)
        assert wrong.returncode != 0
        assert said in wrong.stderr
        assert "Traceback" not in wrong.stderr


def test_children_get_no_new_privileges_and_write_for_nobody_else(scene: Scene) -> None:
    bookie = scene.bookie().start()
    write_and_read(bookie.metadata, scene.options())
    for child in bookie.children():  # the repair worker may still be starting
        status = Path(f"/proc/{child.pid}/status")
        wait_for(
            lambda status=status: "NoNewPrivs:\t1" in status.read_text(), f"{child} to give them up"
        )
    [disk] = bookie.disks
    for path in (disk, disk / "admin.sock", *(disk / "entrylog").iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path
