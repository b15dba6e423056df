"""Commands that ask a bookie over TCP: by address and token, over TLS, with the one spelling."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bkbox_tui.sources import Bookie

from bkbox.api.cluster.asking import Reach
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.client import options
from tests.harness.processes import BookieProcess, bkbox, free_port
from tests.harness.waiting import wait_for
from tests.security.certificates import Authority, secret_file

TOKEN, READ_TOKEN = "t" * 32, "r" * 32


@dataclass
class Scene:
    """A bookie whose admin API speaks TLS, and what an operator elsewhere has."""

    bookie: BookieProcess
    url: str
    folder: Path
    environment: dict[str, str]

    def ask(
        self, *words: str, token: str | None = "token", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        where = ["--bookie", self.url]
        if token is not None:
            where += ["--token-file", str(self.folder / token)]
        env = {**os.environ, **self.environment, **environment}
        return bkbox(*words, *where, check=False, env=env)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("remote")
    authority = Authority(folder / "authority")
    pair = authority.issue("bookie")
    port = free_port()
    for name, token in (("token", TOKEN), ("reader", READ_TOKEN), ("wrong", "w" * 32)):
        secret_file(folder / name, token)
    bookie = BookieProcess(folder, f"sqlite:{folder}/cluster.db").init(
        disks=1,
        http_listen=f"127.0.0.1:{port}",
        http_token_file=folder / "token",
        http_read_token_file=folder / "reader",
        http_tls="required",
        tls_certificate_file=pair.certificate,
        tls_key_file=pair.key,
    )
    file = folder / "client.toml"
    file.write_text(f'tls_ca_file = "{authority.file}"\n')
    try:
        bookie.start()
        url = f"https://127.0.0.1:{port}"
        yield Scene(bookie, url, folder, {"BKBOX_CLIENT_FILE": str(file)})
    finally:
        bookie.ensure_gone()


def test_what_is_asked_here_can_be_asked_from_afar(scene: Scene) -> None:
    assert json.loads(scene.ask("status", "-o", "json").stdout)["state"] == "running"
    assert json.loads(scene.ask("job", "list", "--all", "-o", "json").stdout) == []
    found = scene.ask("health", "-o", "json")
    whole = {"healthy": True, "waits_for": [], "copies_checked_ms": 0}
    assert (found.returncode, json.loads(found.stdout)) == (0, whole)
    recording = scene.folder / "night.jsonl.gz"
    done = scene.ask("tui", "--record", str(recording), "--headless", "2")
    assert done.returncode == 0, done.stderr
    assert recording.stat().st_size > 100


def test_the_variables_stand_for_the_options(scene: Scene) -> None:
    there = {
        **os.environ,
        **scene.environment,
        "BKBOX_BOOKIE": scene.url,
        "BKBOX_TOKEN_FILE": str(scene.folder / "reader"),
    }
    assert json.loads(bkbox("status", "-o", "json", env=there).stdout)["state"] == "running"
    # What stands on the command line counts for more, and a bookie is not disturbed by them.
    there["BKBOX_BOOKIE"] = "https://127.0.0.1:1"
    here = bkbox("status", "--config", str(scene.bookie.config), "-o", "json", env=there)
    assert json.loads(here.stdout)["state"] == "running"
    refused = bkbox("job", "pause", "1", env=there | {"BKBOX_BOOKIE": scene.url}, check=False)
    assert refused.returncode == ExitCode.FAILED
    assert "may only read" in refused.stderr


def test_what_is_wrong_is_said(scene: Scene, tmp_path: Path) -> None:
    for words, token, environment, says in (
        (("status",), "wrong", {}, "the token is not the one of this bookie"),
        (("status",), None, {}, "--bookie needs --token-file"),
        (
            ("status",),
            "token",
            {"BKBOX_CLIENT_FILE": ""},
            "shows a certificate that is not accepted",
        ),
        (("status", "--config", str(scene.bookie.config)), "token", {}, "give either --config or"),
        (("tui", "--replay", "x"), "token", {}, "give one of"),
    ):
        found = scene.ask(*words, token=token, **environment)
        assert found.returncode not in (0, ExitCode.NOT_RUNNING)
        assert says in " ".join(found.stderr.split())
        assert TOKEN not in found.stdout + found.stderr
    nobody = bkbox("status", check=False)
    assert nobody.returncode == ExitCode.USAGE
    assert "no configuration was found" in nobody.stderr
    token = ("--token-file", str(scene.folder / "token"))
    clear = bkbox("status", "--bookie", "http://10.0.0.5:8080", *token, check=False)
    assert "in the clear" in clear.stderr
    away = bkbox("status", "--bookie", "http://127.0.0.1:1", *token, check=False)
    assert away.returncode == ExitCode.NOT_RUNNING


def test_who_else_is_there(scene: Scene) -> None:
    """Over the API, on a screen elsewhere, and in the list of the cluster: as each published it."""

    async def look() -> list[tuple[str, str, str | None]]:
        reach = Reach(scene.folder / "token", plain_text=False)
        there = Bookie(reach.address(scene.url), None, lambda: 0, reach)
        async with there.cluster() as (watch, asker):
            watch.poll()
            await watch.finish()
            assert str(asker.reached[scene.bookie.bookie_id]) == scene.url
            return [(row.bookie, row.state, row.report.version) for row in watch.rows()]

    with pytest.MonkeyPatch.context() as patch:
        authority = scene.folder / "authority" / "ca.pem"
        patch.setitem(options._OF_THIS_PROCESS, "tls_ca_file", str(authority))
        [(name, mode, version)] = asyncio.run(look())
    assert (name, mode) == (scene.bookie.bookie_id, "writable")
    assert version is not None
    assert version.startswith("bkbox ")
    listed = bkbox("cluster", "list", "--config", str(scene.bookie.config), "-o", "json")
    [member] = json.loads(listed.stdout)
    assert member["version"] == version
    assert member["admin"] == scene.url, "it listens on loopback, and so does its admin API"


def test_a_new_token_and_a_new_certificate_need_no_restart(scene: Scene) -> None:
    """The old token is worth nothing then; a file that is of no use changes nothing."""
    token = scene.folder / "token"
    token.write_text("short")
    reload = ("config", "reload", "--config", str(scene.bookie.config))
    assert "one word of 16" in bkbox(*reload, check=False).stderr
    secret_file(scene.folder / "old", TOKEN)
    assert scene.ask("status", token="old").returncode == 0
    token.write_text("n" * 32)
    wait_for(lambda: scene.ask("status").returncode == 0, "the new token to hold, unasked")
    assert scene.ask("status", token="old").returncode == ExitCode.FAILED
    other = Authority(scene.folder / "other", "other")
    pair = other.issue("bookie", file="next")
    (scene.folder / "authority" / "bookie.crt").write_bytes(pair.certificate.read_bytes())
    (scene.folder / "authority" / "bookie.key").write_bytes(pair.key.read_bytes())
    bkbox(*reload)
    assert "not accepted" in scene.ask("status").stderr
    new = scene.folder / "new.toml"
    new.write_text(f'tls_ca_file = "{other.file}"\n')
    assert scene.ask("status", BKBOX_CLIENT_FILE=str(new)).returncode == 0
