"""The HTTP paths of Apache's bookie: bkbox's answers have the shapes of a real one's, path by path."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness.java import java_command, maven_jars
from tests.harness.processes import bkbox as run_bkbox
from tests.harness.processes import free_port
from tests.harness.waiting import wait_for
from tests.interop.clients import pattern
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import InteropCluster
from tests.interop.javaclient import JavaClient

TOKEN = "t" * 32
LEDGER = 7100
POM = Path(__file__).parent / "javahttp" / "pom.xml"


@dataclass(frozen=True)
class Served:
    """Where one of the bookies answers."""

    port: int
    bookie_id: str

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        """Status, and what is there: JSON where it is some, else text."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as asked:
            asked.request(method, path, body, {"Authorization": f"Bearer {TOKEN}"})
            response = asked.getresponse()
            text = response.read().decode()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> InteropCluster:
    made = make_cluster("http", java=1)
    client = made.client("java-v3")
    assert isinstance(client, JavaClient)
    writer = client.create(
        1, 1, 1, adv=True, ledger=LEDGER, password=b"pw", custom={"key": b"value"}
    )
    for entry in range(3):
        writer.write(entry, pattern(entry, 40))
    writer.close()
    return made


@pytest.fixture(scope="module")
def java(cluster: InteropCluster) -> Iterator[Served]:
    port = free_port()
    bookie = cluster.add_java(
        httpServerEnabled="true",
        httpServerHost="127.0.0.1",
        httpServerPort=str(port),
        httpServerClass="org.apache.bookkeeper.http.vertx.VertxHttpServer",
    )
    command = java_command(
        "org.apache.bookkeeper.server.Main", "--conf", str(bookie.configuration), heap_mb=160
    )
    place = command.index("-cp") + 1
    command[place] = f"{command[place]}:{maven_jars(POM)}/*"
    bookie.launch(command)
    bookie.wait_ready()
    served = Served(port, bookie.bookie_id)

    def answers() -> bool:
        try:
            return served.ask("GET", "/heartbeat")[0] == 200
        except OSError:
            return False

    bookie.wait_until(answers)
    yield served
    cluster.lose(bookie)


@pytest.fixture(scope="module")
def bkbox(cluster: InteropCluster) -> Iterator[Served]:
    token = cluster.root / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    port = free_port()
    bookie = cluster.add_bkbox(http_listen=f"127.0.0.1:{port}", http_token_file=token)
    bookie.start()
    yield Served(port, bookie.bookie_id)
    cluster.lose(bookie)


def shape(value: Any) -> Any:
    """Names and kinds, without what is said."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value).__name__


SAME_SHAPE = [
    "/heartbeat",
    "/api/v1/bookie/state",
    "/api/v1/bookie/state/readonly",
    "/api/v1/bookie/is_ready",
    "/api/v1/bookie/info",
    "/api/v1/bookie/gc",
    "/api/v1/bookie/gc/suspend_compaction",
    "/api/v1/bookie/cluster_info",
    "/api/v1/bookie/list_disk_file",
    "/api/v1/bookie/list_disk_file?file_type=entrylog",
    "/api/v1/bookie/list_bookies",
    "/api/v1/bookie/list_bookies?type=ro",
    "/api/v1/bookie/list_bookies?type=rw&print_hostnames=true",
    "/api/v1/bookie/list_bookie_info",
    "/api/v1/ledger/list",
    f"/api/v1/ledger/metadata?ledger_id={LEDGER}",
    "/api/v1/autorecovery/status",
    "/api/v1/autorecovery/list_under_replicated_ledger",
    "/api/v1/autorecovery/who_is_auditor",
]

SAME_ANSWER = {
    "/heartbeat",
    "/api/v1/bookie/is_ready",
    "/api/v1/bookie/state",
    "/api/v1/bookie/state/readonly",
    "/api/v1/bookie/gc",
    "/api/v1/bookie/gc/suspend_compaction",
    "/api/v1/bookie/cluster_info",
    "/api/v1/bookie/list_bookies",
    "/api/v1/bookie/list_bookies?type=ro",
    "/api/v1/ledger/list",
    "/api/v1/autorecovery/status",
    "/api/v1/autorecovery/list_under_replicated_ledger",
}
"""Where it is about the cluster, or of two bookies that are well."""


@pytest.mark.parametrize("path", SAME_SHAPE)
def test_answers_have_the_same_shape(java: Served, bkbox: Served, path: str) -> None:
    theirs, ours = java.ask("GET", path), bkbox.ask("GET", path)
    assert ours[0] == theirs[0], (ours, theirs)
    assert shape(ours[1]) == shape(theirs[1]), (ours, theirs)
    if path in SAME_ANSWER:
        assert ours[1] == theirs[1]


def test_metadata_says_the_same_but_for_the_password(java: Served, bkbox: Served) -> None:
    path = f"/api/v1/ledger/metadata?ledger_id={LEDGER}"
    ours, theirs = (each.ask("GET", path)[1][str(LEDGER)] for each in (bkbox, java))
    assert theirs.pop("password")
    assert ours.pop("password") == ""
    assert ours == theirs


def test_details_of_collection(java: Served, bkbox: Served) -> None:
    ours, theirs = (each.ask("GET", "/api/v1/bookie/gc_details")[1] for each in (bkbox, java))
    assert shape(ours[0]) == shape(theirs[0])


def test_room_in_javas_text(java: Served, bkbox: Served) -> None:
    """Both ask all bookies of the cluster; what is free changes meanwhile."""
    ours, theirs = (each.ask("GET", "/api/v1/bookie/list_bookie_info")[1] for each in (bkbox, java))
    assert ours.keys() == theirs.keys()
    for name in ours:
        words = [
            "".join("9" if letter.isdigit() else letter for letter in text).replace("9", "")
            for text in (ours[name], theirs[name])
        ]
        assert words[0].replace(".", "") == words[1].replace(".", "")


@pytest.mark.parametrize("wanted", ["true", "false"])
def test_read_only_and_back(java: Served, bkbox: Served, wanted: str) -> None:
    path, body = "/api/v1/bookie/state/readonly", f'{{"readOnly": {wanted}}}'
    for each in (java, bkbox):
        assert each.ask("PUT", path, body) == (200, {"readOnly": wanted == "true"})

        def says_so(each: Served = each) -> bool:
            return bool(each.ask("GET", path)[1]["readOnly"] == (wanted == "true"))

        wait_for(says_so, f"{each.bookie_id} to say so")


def test_autorecovery_off_and_on(java: Served, bkbox: Served) -> None:
    path = "/api/v1/autorecovery/status"
    for one, other in ((java, bkbox), (bkbox, java)):
        for wanted in ("false", "true"):
            expected = (200, {"enabled": wanted == "true"})
            assert one.ask("PUT", f"{path}?enabled={wanted}") == expected
            assert other.ask("GET", path) == expected


def test_the_delay_for_lost_bookies(java: Served, bkbox: Served) -> None:
    path = "/api/v1/autorecovery/lost_bookie_recovery_delay"
    for one, other, seconds in ((java, bkbox, 17), (bkbox, java, 18)):
        said = one.ask("PUT", path, f'{{"delay_seconds": {seconds}}}')
        assert said == (200, f"Success set lostBookieRecoveryDelay to {seconds}")
        assert other.ask("GET", path) == (200, f"lostBookieRecoveryDelay value: {seconds}")


def test_gc_is_triggered(java: Served, bkbox: Served) -> None:
    for each in (java, bkbox):
        status, said = each.ask("PUT", "/api/v1/bookie/gc")
        assert (status, said.partition(":")[0]) == (200, "Triggered GC on BookieServer")


def test_a_ledger_is_deleted(java: Served, bkbox: Served) -> None:
    path = f"/api/v1/ledger/delete?ledger_id={LEDGER}"
    assert bkbox.ask("DELETE", path) == (200, f"Deleted ledger: {LEDGER}")
    for each in (java, bkbox):
        assert each.ask("GET", "/api/v1/ledger/list") == (200, {})


def test_its_row_on_the_cluster_screen(cluster: InteropCluster, java: Served) -> None:
    def row() -> dict[str, Any]:
        done = run_bkbox("cluster", "status", "--metadata", cluster.uri, "-o", "json")
        return next(
            each for each in json.loads(done.stdout)["bookies"] if each["bookie"] == java.bookie_id
        )

    assert (row()["state"], row()["verdict"]) == ("writable", "ok")
    path = "/api/v1/bookie/state/readonly"
    java.ask("PUT", path, '{"readOnly": true}')
    wait_for(lambda: row()["state"] == "read-only", "it to be read-only there")
    java.ask("PUT", path, '{"readOnly": false}')
    wait_for(lambda: row()["state"] == "writable", "it to be writable there")
