"""Every example does what it says, run as a stranger runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.client import sync
from tests.client.tinybookie import Bookies, bookies

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Bookies]:
    with bookies(tmp_path) as found:
        yield found


def start(made: Bookies, name: str, *arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLES / name), "--metadata", made.uri, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(made: Bookies, name: str, *arguments: str | Path, status: int = 0) -> str:
    process = start(made, name, *arguments)
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    return out if status == 0 else err


def test_every_example_is_listed_and_tested() -> None:
    there = {path.name for path in EXAMPLES.glob("*.py")}
    assert there == set(re.findall(r"`(\w+\.py)`", (EXAMPLES / "README.md").read_text()))
    spark = Path(__file__).parents[1] / "spark" / "test_spark_log_sink.py"
    tests = Path(__file__).read_text() + spark.read_text()
    assert there == set(re.findall(r'["/](\w+\.py)"', tests)) - {spark.name}


def test_key_value_store(made: Bookies) -> None:
    name = "keyvalue.py"
    assert run(made, name, "get", "colour") == "\n"
    run(made, name, "set", "colour", "blue")
    run(made, name, "set", "size", "5")
    run(made, name, "set", "colour", "red")
    run(made, name, "delete", "size")
    assert run(made, name, "get", "colour") == "red\n"
    assert run(made, name, "get", "size") == "\n"
    standby = start(made, name, "standby")
    assert standby.stdout is not None
    seen = [json.loads(standby.stdout.readline().split(" ", 1)[1]) for _ in range(4)]
    assert seen[2] == {"key": "colour", "value": "red"}
    run(made, name, "set", "late", "yes")
    assert '"late"' in standby.stdout.readline()
    standby.kill()
    standby.communicate()


def test_a_service_over_sqlite(made: Bookies, tmp_path: Path) -> None:
    database = ("--database", tmp_path / "accounts.db")
    transfer = ("transfer", "req-1", "alice", "bob", "10")
    assert run(made, "sqlite_service.py", *database, *transfer).splitlines()[-2:] == [
        "alice -10",
        "bob 10",
    ]
    assert "done before" in run(made, "sqlite_service.py", *database, *transfer)
    run(made, "sqlite_service.py", *database, "transfer", "req-2", "bob", "carol", "3")
    whole = ["alice -10", "bob 7", "carol 3"]
    (tmp_path / "accounts.db").unlink()
    said = run(made, "sqlite_service.py", *database, "balances").splitlines()
    assert said == ["2 records were missing in the file", *whole]
    assert (
        run(made, "sqlite_service.py", *database, "balances")
        .splitlines()[0]
        .startswith("0 records")
    )


def test_fan_out(made: Bookies, tmp_path: Path) -> None:
    with sync.connect(made.uri) as client, client.log("orders").open_writer() as writer:
        writer.append_many([b"record %d" % number for number in range(100)])
        readers = [
            start(
                made,
                "fanout.py",
                "--log",
                "orders",
                "--place",
                tmp_path / f"{n}.position",
                "--until",
                "end",
            )
            for n in range(3)
        ]
        writer.append(b"end")
        for reader in readers:
            out, err = reader.communicate(timeout=60)
            assert reader.returncode == 0, err
            assert len(out.splitlines()) == 101
        writer.append_many([b"more", b"end"])
    again = run(
        made, "fanout.py", "--log", "orders", "--place", tmp_path / "0.position", "--until", "end"
    )
    assert [line.split(" ", 1)[1] for line in again.splitlines()] == ["more", "end"]


def test_kafka(made: Bookies, tmp_path: Path) -> None:
    def line(partition: int, offset: int) -> str:
        return json.dumps(
            {
                "topic": "orders",
                "partition": partition,
                "offset": offset,
                "tstype": "create",
                "ts": 1000 + offset,
                "broker": 1,
                "key": f"k{offset}",
                "payload": f"p{partition}/{offset}",
            }
        )

    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first.write_text("\n".join(line(n % 2, n // 2) for n in range(200)) + "\n")
    second.write_text("\n".join(line(n % 2, n // 2) for n in range(100, 300)) + "\n")
    said = run(made, "kafka_import.py", "--compression", "zstd", first)
    assert said.splitlines() == ["orders.0: 100 records", "orders.1: 100 records"]
    assert "orders.0: 0 records" in run(made, "kafka_import.py", first)
    assert "orders.1: 50 records" in run(made, "kafka_import.py", second)
    with sync.connect(made.uri) as client:
        records = list(client.log("orders.1").read())
        assert [json.loads(record.payload)["payload"] for record in records] == [
            f"p1/{n}" for n in range(150)
        ]
        assert json.loads(records[7].payload)["key"] == "k7"
        assert [record.timestamp_ms for record in records] == [1000 + n for n in range(150)]
    second.write_text("not json\n")
    assert "line 1: not as kcat" in run(made, "kafka_import.py", second, status=1)
