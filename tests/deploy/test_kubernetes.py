"""The manifests for Kubernetes: valid by its schemas, and what they ask of bkbox is there."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from click.testing import CliRunner

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.config.load import load
from bkbox.metadata import init_cluster
from tests.harness.processes import BKBOX, bkbox, free_port
from tests.harness.waiting import wait_for

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
MANIFESTS = {
    name: yaml.safe_load((FOLDER / name).read_text()) for name in KUSTOMIZATION["resources"]
}
STATEFUL_SET = MANIFESTS["statefulset.yaml"]["spec"]
POD = STATEFUL_SET["template"]["spec"]
(BOOKIE,) = POD["containers"]
CONFIG = tomllib.loads((FOLDER / "bkbox.toml").read_text())


@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.parametrize("version", ["1.30", "1.35"])
def test_the_schemas_of_kubernetes(name: str, version: str) -> None:
    kubernetes_validate.validate(MANIFESTS[name], version, strict=True)


def test_every_file_is_part_of_it() -> None:
    (config,) = KUSTOMIZATION["configMapGenerator"]
    named = {"kustomization.yaml", *config["files"], *MANIFESTS}
    assert {path.name for path in FOLDER.iterdir()} == named
    assert POD["volumes"][0]["configMap"]["name"] == config["name"]
    assert [each["name"] for each in KUSTOMIZATION["images"]] == [BOOKIE["image"]]


def test_what_selects_the_pods() -> None:
    labels = STATEFUL_SET["template"]["metadata"]["labels"]
    (rule,) = POD["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    for selected in (
        STATEFUL_SET["selector"]["matchLabels"],
        MANIFESTS["service.yaml"]["spec"]["selector"],
        MANIFESTS["poddisruptionbudget.yaml"]["spec"]["selector"]["matchLabels"],
        rule["labelSelector"]["matchLabels"],
    ):
        assert selected == labels
    assert STATEFUL_SET["serviceName"] == MANIFESTS["service.yaml"]["metadata"]["name"]


def test_the_configuration(tmp_path: Path) -> None:
    host = {each["name"]: each for each in BOOKIE["env"]}["BKBOX_ADVERTISED_HOST"]["value"]
    host = host.replace("$(POD_NAME)", "bkbox-0").replace("$(POD_NAMESPACE)", "prod")
    config = load(FOLDER / "bkbox.toml", {"BKBOX_ADVERTISED_HOST": host})
    service = MANIFESTS["service.yaml"]
    assert config.bookie_id == f"bkbox-0.{service['metadata']['name']}.prod.svc:3181"
    ports = {config.listen_port, *(each["containerPort"] for each in BOOKIE["ports"])}
    assert ports == {each["port"] for each in service["spec"]["ports"]}
    assert POD["terminationGracePeriodSeconds"] > 2 * config.stop_timeout_s
    mounts = {each["mountPath"]: each["name"] for each in BOOKIE["volumeMounts"]}
    claims = {each["metadata"]["name"] for each in STATEFUL_SET["volumeClaimTemplates"]}
    assert {mounts[str(disk.parent)] for disk in config.disks} == claims


def test_a_new_bookie_a_known_one_and_a_lost_volume(tmp_path: Path) -> None:
    """As the pod starts: the init container, then the bookie, with the paths and the metadata store of a test."""
    store = f"sqlite:{tmp_path}/metadata.db"
    (init,) = POD["initContainers"]
    *shell, script = init["command"]
    port = free_port()
    (tmp_path / "tmp").mkdir()

    def here(text: str) -> str:
        for there, place in (
            ("/tmp/", f"{tmp_path}/tmp/"),
            (CONFIG["metadata"], store),
            (CONFIG["listen"], f"127.0.0.1:{port}"),
            ("/data/", f"{tmp_path}/data/"),
        ):
            assert there in text or there == "/tmp/"
            text = text.replace(there, place)
        return text

    (tmp_path / "bkbox.toml").write_text(here((FOLDER / "bkbox.toml").read_text()))
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {
        "PATH": path,
        "BKBOX_CONFIG": str(tmp_path / "bkbox.toml"),
        "BKBOX_ADVERTISED_HOST": "localhost",
    }
    early = subprocess.run(
        [*shell, here(script)], env=environment, check=False, capture_output=True
    )
    assert early.returncode == ExitCode.TRY_AGAIN, "there is no metadata store"
    asyncio.run(init_cluster(store))
    for lost in (None, None, tmp_path / "data/b/bookie"):
        if lost is not None:
            shutil.rmtree(lost)
        subprocess.run([*shell, here(script)], env=environment, check=True, capture_output=True)
        with subprocess.Popen(
            [*BKBOX, "run"], env=environment, stderr=subprocess.DEVNULL
        ) as bookie:
            try:
                wait_for(lambda: _state(tmp_path) == "running", "the bookie", timeout=60)
            finally:
                bookie.terminate()
            assert bookie.wait(60) == 0


def _state(root: Path) -> str:
    shown = bkbox("status", "-o", "json", "--config", str(root / "bkbox.toml"), check=False)
    return "" if shown.returncode else str(json.loads(shown.stdout)["state"])


def _commands() -> list[list[str]]:
    probes = [BOOKIE[name]["exec"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    return [each["command"] for each in (*probes, BOOKIE["lifecycle"]["preStop"]["exec"])]


@pytest.mark.parametrize("command", _commands(), ids=" ".join)
def test_its_commands(command: list[str]) -> None:
    """They take these words; the configuration comes from BKBOX_CONFIG."""
    name, *words = command
    assert name == "bkbox"
    variables: dict[str, Any] = {each["name"]: each.get("value") for each in BOOKIE["env"]}
    assert variables["BKBOX_CONFIG"] == "/etc/bkbox/bkbox.toml"
    ended = CliRunner().invoke(main, words, env={"BKBOX_CONFIG": "/nowhere/bkbox.toml"})
    assert "/nowhere/bkbox.toml" in ended.output
