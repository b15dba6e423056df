"""Racks by a script and by a map, good and bad ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from bkbox.base.ids import BookieId
from bkbox.client.placement import topology
from bkbox.client.placement.topology import (
    DEFAULT_RACK,
    MapTopology,
    NoTopology,
    ScriptTopology,
    parse_rack_map,
)
from bkbox.errors import ConfigError, EncodingError, MetadataUnavailableError
from tests.harness.waiting import wait_for


def script(folder: Path, body: str) -> str:
    """An executable that notes its arguments, a line for each call, in the file ``calls``."""
    file = folder / "racks.sh"
    file.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{body}\n')
    file.chmod(0o755)
    return str(file)


def calls(folder: Path) -> list[str]:
    return sorted((folder / "calls").read_text().splitlines())


def hosts(**host_of: str) -> dict[BookieId, str]:
    return {BookieId(bookie): host for bookie, host in host_of.items()}


def ask(
    script_file: str, *questions: Mapping[BookieId, str]
) -> tuple[list[dict[BookieId, str]], list[str]]:
    said: list[str] = []

    async def go() -> list[dict[BookieId, str]]:
        asked = ScriptTopology(script_file, said.append)
        return [await asked.racks(question) for question in questions]

    return asyncio.run(go()), said


# ---- script -------------------------------------------------------------------------------------


def test_a_script_gets_one_address_a_call_and_each_host_once(tmp_path: Path) -> None:
    file = script(tmp_path, 'case "$1" in *.1) echo /r1 ;; *) echo /dc/r2/ ;; esac')
    question = hosts(a="10.0.0.1", b="10.0.0.2", c="10.0.0.1", d="localhost")
    (racks, again), said = ask(file, question, {**question, BookieId("e"): "10.1.1.1"})
    assert racks == {"a": "/r1", "b": "/dc/r2", "c": "/r1", "d": "/r1"}
    assert again == {**racks, "e": "/r1"}
    assert calls(tmp_path) == ["10.0.0.1", "10.0.0.2", "10.1.1.1", "127.0.0.1"]
    assert said == []


def test_addresses_are_written_as_java_writes_them(tmp_path: Path) -> None:
    file = script(tmp_path, "echo /r")
    ask(file, hosts(a="::1", b="2001:db8::a:0", c="a..b"))
    assert calls(tmp_path) == [
        "0:0:0:0:0:0:0:1",
        "2001:db8:0:0:0:0:a:0",
        "a..b",
    ]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo first >&2; echo 'no such switch' >&2; exit 3", r"exit code 3 for \S+: no such"),
        ("exit 1", "exit code 1 for 10.0.0.9"),
        ("kill -9 $$", "exit code -9"),
        (":", "it printed 0 words for one address"),
        ("echo /r1 /r2", "it printed 2 words for one address"),
        ("echo rack1", "it printed 'rack1', and a rack is a path such as /rack1"),
        ("echo /", "it printed '/', and a rack is a path"),
        ("printf '\\377'", "a rack is a path such as"),
    ],
)
def test_a_script_that_fails_means_the_default_rack_and_is_told_once(
    tmp_path: Path, body: str, why: str
) -> None:
    file = script(tmp_path, f'[ "$1" = 10.0.0.1 ] && {{ echo /r1; exit; }}\n{body}')
    question = hosts(good="10.0.0.1", bad="10.0.0.9")
    answers, said = ask(file, question, question)
    assert answers == [{"good": "/r1", "bad": DEFAULT_RACK}] * 2
    assert len(said) == 1
    assert said[0].startswith(f"topology script {file}: ")
    assert said[0].endswith("; 10.0.0.9 is taken to be in /default-rack")
    assert re.search(why, said[0])
    assert calls(tmp_path) == ["10.0.0.1", "10.0.0.9"], "not asked again at once"


def test_a_failure_is_tried_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "REFRESH_S", 0.0)
    file = script(tmp_path, f"[ -e {tmp_path}/ready ] && echo /r1; touch {tmp_path}/ready")
    answers, said = ask(file, *[hosts(a="10.0.0.1")] * 3)
    assert answers == [{"a": DEFAULT_RACK}, {"a": "/r1"}, {"a": "/r1"}]
    assert len(said) == 1
    assert len(calls(tmp_path)) == 2


def test_a_script_that_hangs_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "SCRIPT_TIMEOUT_S", 0.3)
    file = script(tmp_path, f"sleep 600 & echo $! > {tmp_path}/pid; wait; echo /r1")
    (racks,), said = ask(file, hosts(a="10.0.0.1"))
    assert racks == {"a": DEFAULT_RACK}
    assert said == [
        f"topology script {file}: no answer within 0.3 s; 10.0.0.1 is taken to be in /default-rack"
    ]
    child = int((tmp_path / "pid").read_text())
    with contextlib.suppress(psutil.NoSuchProcess):
        wait_for(lambda: psutil.Process(child).status() == psutil.STATUS_ZOMBIE, "its end")


def test_many_hosts_are_asked_and_none_twice_by_two_at_once(tmp_path: Path) -> None:
    file = script(tmp_path, "echo /r${1##*.}")
    question = {BookieId(f"b{n}"): f"10.0.0.{n}" for n in range(20)}

    async def go() -> list[dict[BookieId, str]]:
        asked = ScriptTopology(file)
        return await asyncio.gather(asked.racks(question), asked.racks(question))

    first, second = asyncio.run(go())
    assert first == second == {f"b{n}": f"/r{n}" for n in range(20)}
    assert len(calls(tmp_path)) == 20


def test_what_cannot_be_executed_is_refused_at_once(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    for name in (plain, tmp_path, tmp_path / "absent"):
        with pytest.raises(ConfigError, match="no such file, or it is not executable"):
            ScriptTopology(str(name))


def test_no_shebang_is_a_failure_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "noise"
    file.write_bytes(b"\x00\x01")
    file.chmod(0o755)
    (racks,), said = ask(str(file), hosts(a="10.0.0.1"))
    assert racks == {"a": DEFAULT_RACK}
    assert "Exec format error" in said[0]


def test_nobody_says_racks() -> None:
    assert asyncio.run(NoTopology().racks(hosts(a="x", b="y"))) == {
        "a": DEFAULT_RACK,
        "b": DEFAULT_RACK,
    }


# ---- map ----------------------------------------------------------------------------------------

PULSAR = {
    "group1": {
        "10.0.0.1:3181": {"rack": "/r1", "hostname": "one.example.com"},
        "named": {"rack": "dc/r2", "hostname": None},
    },
    "group2": {
        "10.0.0.3:3181": {"rack": "/"},
        "10.0.0.4:3181": {"rack": "", "hostname": "four"},
        "10.0.0.5:3181": {},
        "10.0.0.6:3181": {"rack": " /r6/ ", "unknown": 1},
    },
}


def test_the_map_of_pulsar() -> None:
    assert parse_rack_map(json.dumps(PULSAR).encode()) == {
        "10.0.0.1:3181": "/r1",
        "named": "/dc/r2",
        "10.0.0.6:3181": "/r6",
    }
    assert parse_rack_map(b"{}") == {}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[]", "an object of groups"),
        (b'{"g": []}', "group 'g' is no object"),
        (b'{"g": {"b": {"rack": 1}}}', "the rack of b is no text"),
    ],
)
def test_what_is_no_map(data: bytes, why: str) -> None:
    with pytest.raises(EncodingError, match=why):
        parse_rack_map(data)


def test_a_map_goes_by_id_then_by_host_and_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "REFRESH_S", 0.0)
    present: list[bytes | Exception] = [MetadataUnavailableError("ZooKeeper is away")]
    said: list[str] = []

    async def read() -> bytes:
        if isinstance(present[0], Exception):
            raise present[0]
        return present[0]

    asked = MapTopology("racks", read, said.append)
    question = {
        BookieId("10.0.0.1:3181"): "10.0.0.1",
        BookieId("10.0.0.1:3182"): "10.0.0.1",
        BookieId("named"): "10.9.9.9",
    }

    def racks() -> list[str]:
        return list(asyncio.run(asked.racks(question)).values())

    assert racks() == [DEFAULT_RACK] * 3
    assert said[0] == "rack map racks: ZooKeeper is away; what was read before, if any, is kept"
    present[0] = json.dumps(PULSAR).encode()
    assert racks() == ["/r1", "/r1", "/dc/r2"]
    present[0] = b"{"
    assert racks() == ["/r1", "/r1", "/dc/r2"]
    present[0] = json.dumps({"g": {"10.0.0.1:3182": {"rack": "/r3"}}}).encode()
    assert racks() == ["/r3", "/r3", DEFAULT_RACK]
    assert racks() == ["/r3", "/r3", DEFAULT_RACK]
    assert said[1:] == [
        *(f"rack map racks: {name} has no rack; it is in {DEFAULT_RACK}" for name in question),
        said[4],
    ]
    assert "no JSON" in said[4]


def test_two_at_once_read_a_map_once() -> None:
    reads = []

    async def read() -> bytes:
        reads.append(1)
        await asyncio.sleep(0.01)
        return json.dumps(PULSAR).encode()

    async def go() -> list[dict[BookieId, str]]:
        asked = MapTopology("racks", read)
        question = {BookieId("named"): "h"}
        return await asyncio.gather(asked.racks(question), asked.racks(question))

    assert asyncio.run(go()) == [{"named": "/dc/r2"}] * 2
    assert len(reads) == 1
