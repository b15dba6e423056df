"""The ledger commands, against a real bookie."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from tests.harness.processes import BKBOX, BookieProcess

ONE = ("-e", "1", "-w", "1", "-a", "1")


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieProcess]:
    root = tmp_path_factory.mktemp("ledger")
    process = BookieProcess(root, f"sqlite:{root}/cluster.db").init(disks=1).start()
    yield process
    process.ensure_gone()


class Cli:
    """``bkbox ledger …`` against the bookie's metadata store, bytes in and out."""

    def __init__(self, uri: str, folder: Path) -> None:
        self._uri = uri
        self._input = folder / "input"

    def run(self, *words: object, stdin: str = "") -> Result:
        line = ["ledger", *map(str, words), "--metadata", self._uri]
        result = CliRunner().invoke(main, line, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def ok(self, *words: object) -> bytes:
        done = self.run(*words)
        assert done.exit_code == 0, done.stderr
        return done.stdout_bytes

    def write(self, data: bytes, *words: object) -> int:
        self._input.write_bytes(data)
        return int(self.ok("write", *ONE, *words, "--file", self._input))


@pytest.fixture
def cli(bookie: BookieProcess, tmp_path: Path) -> Cli:
    return Cli(bookie.metadata, tmp_path)


def test_standard_input_to_standard_output(bookie: BookieProcess) -> None:
    def ledger(*words: str, stdin: bytes = b"") -> bytes:
        line = [*BKBOX, "ledger", *words, "--metadata", bookie.metadata]
        return subprocess.run(line, input=stdin, capture_output=True, timeout=60, check=True).stdout

    number = ledger("write", *ONE, stdin=b"a\n\xff").decode().strip()
    assert ledger("read", number) == b"a\n\xff"


def test_lines_come_back_byte_for_byte(cli: Cli) -> None:
    data = b"one\n\ntwo \xff\x00\r\nno end"
    ledger = cli.write(data)
    assert cli.ok("read", ledger) == data
    entries = [json.loads(line) for line in cli.ok("read", ledger, "-o", "json").splitlines()]
    payloads = [base64.b64decode(entry["payload"]) for entry in entries]
    assert payloads == [b"one\n", b"\n", b"two \xff\x00\r\n", b"no end"]
    assert [entry["entry_id"] for entry in entries] == [0, 1, 2, 3]
    assert cli.ok("read", ledger, "--from", 1, "--to", 2) == b"\ntwo \xff\x00\r\n"


def test_chunks_of_files(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "dump.bin"
    data = bytes(range(256)) * 1000
    file.write_bytes(data)
    out = cli.ok("write", *ONE, "--chunk", 4096, "--file", file, "-o", "json")
    result = json.loads(out)
    assert result["entries"] == -(-len(data) // 4096)
    assert (result["bytes"], result["closed"]) == (len(data), True)
    assert cli.ok("read", result["ledger_id"]) == data


def test_an_empty_ledger(cli: Cli) -> None:
    ledger = cli.write(b"")
    assert cli.ok("read", ledger) == b""
    assert cli.ok("read", ledger, "-o", "json") == b""
    shown = json.loads(cli.ok("show", ledger, "-o", "json"))
    assert (shown["state"], shown["last_entry"], shown["length"]) == ("CLOSED", -1, 0)


def test_a_ledger_kept_open_is_recovered_and_closed(cli: Cli, bookie: BookieProcess) -> None:
    ledger = cli.write(b"a\nb\n", "--keep-open")
    shown = json.loads(cli.ok("show", ledger, "-o", "json"))
    assert shown["state"] == "OPEN"
    assert shown["last_entry"] is None
    assert shown["fragments"] == [{"first_entry": 0, "ensemble": [bookie.bookie_id]}]
    recovered = json.loads(cli.ok("recover", ledger, "-o", "json"))
    assert (recovered["state"], recovered["last_entry"], recovered["length"]) == ("CLOSED", 1, 4)
    assert cli.ok("read", ledger) == b"a\nb\n"


def test_create_list_and_delete(cli: Cli) -> None:
    ledger = int(cli.ok("create", *ONE))
    listed = json.loads(cli.ok("list", "-o", "json"))
    assert {"ledger_id": ledger, "state": "OPEN"}.items() <= listed[-1].items()
    assert str(ledger) in cli.ok("list").decode()
    refused = cli.run("delete", ledger, stdin="n\n")
    assert refused.exit_code == ExitCode.FAILED
    cli.ok("show", ledger)
    cli.ok("delete", ledger, "--yes")
    gone = cli.run("show", ledger)
    assert gone.exit_code == ExitCode.NOT_FOUND
    assert gone.stderr.startswith("error: ")


def test_an_interrupted_write_closes_its_ledger(cli: Cli, bookie: BookieProcess) -> None:
    words = [*BKBOX, "ledger", "write", *ONE, "--metadata", bookie.metadata]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe) as writer:
        assert writer.stdin is not None
        assert writer.stderr is not None
        first_message = writer.stderr.readline()
        assert first_message.startswith(b"writing ledger ")
        writer.stdin.write(b"a\n")
        writer.stdin.flush()
        writer.send_signal(signal.SIGINT)
        assert writer.wait(30) == ExitCode.FAILED, "it ended although its input did not"
    ledger = int(first_message.split()[-1])
    assert json.loads(cli.ok("show", ledger, "-o", "json"))["state"] == "CLOSED"
    assert cli.ok("read", ledger) in (b"", b"a\n")


def test_many_short_lines(cli: Cli) -> None:
    data = b"".join(b"%d\n" % number for number in range(3000))
    assert cli.ok("read", cli.write(data)) == data


def test_who_reads_may_stop_early(cli: Cli, bookie: BookieProcess) -> None:
    ledger = cli.write(bytes(4 << 20), "--chunk", 65536)
    words = [*BKBOX, "ledger", "read", str(ledger), "--metadata", bookie.metadata]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.read(10) == bytes(10)
        reader.stdout.close()
        assert reader.stderr.read() == b""


def test_passwords(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("secret\n")
    wrong.write_text("guess\n")
    ledger = cli.write(b"x\n", "--password-file", right)
    assert cli.ok("read", ledger, "--password-file", right) == b"x\n"
    assert cli.ok("read", ledger) == b"x\n", "the metadata store has the password"
    assert cli.run("read", ledger, "--password-file", wrong).exit_code == ExitCode.FAILED
    monkeypatch.setenv("BKBOX_LEDGER_PASSWORD", "guess")
    assert cli.run("read", ledger).exit_code == ExitCode.FAILED
    monkeypatch.setenv("BKBOX_LEDGER_PASSWORD", "secret")
    assert cli.ok("read", ledger) == b"x\n"


def test_what_cannot_be(cli: Cli) -> None:
    assert cli.run("read", -1).exit_code == ExitCode.USAGE
    assert cli.run("read", 2**63).exit_code == ExitCode.USAGE
    assert cli.run("read", 2**62).exit_code == ExitCode.NOT_FOUND
    quorums = cli.run("write", "-e", 1, "-w", 2, "-a", 1)
    assert quorums.exit_code == ExitCode.USAGE
    assert quorums.stderr.startswith("error: ")
    lonely = cli.run("write", "-e", 3, "-w", 3, "-a", 2)
    assert lonely.exit_code == ExitCode.TRY_AGAIN


def test_the_metadata_store_from_a_configuration(bookie: BookieProcess, cli: Cli) -> None:
    ledger = cli.write(b"x\n")
    words = ["ledger", "show", str(ledger), "-o", "json"]
    found = CliRunner().invoke(main, [*words, "--config", str(bookie.config)])
    assert json.loads(found.stdout)["ledger_id"] == ledger
    for wrong in (words, [*words, "--config", str(bookie.config), "--metadata", "sqlite:x"]):
        assert CliRunner().invoke(main, wrong).exit_code == ExitCode.USAGE


def test_durable_entries(cli: Cli) -> None:
    ledger = cli.write(b"a\nb\n", "--durable", "--ack-after", "sync")
    shown = json.loads(cli.ok("show", ledger, "-o", "json"))
    assert (shown["state"], shown["last_entry"]) == ("CLOSED", 1)
    assert base64.b64decode(shown["custom"]["bkbox.ack_after"]) == b"sync"
    assert cli.run("write", *ONE, "--durable", "--keep-open").exit_code == ExitCode.USAGE


def test_a_ledger_is_explained(cli: Cli, bookie: BookieProcess) -> None:
    ledger = cli.write(b"a\nb\n", "--keep-open")
    said = json.loads(cli.ok("explain", ledger, "-o", "json"))
    assert (said["state"], said["recovery"], said["end"]) == ("OPEN", "recovery closes it", 1)
    [there] = said["bookies"]
    assert {
        "bookie": bookie.bookie_id,
        "alive": True,
        "limbo": False,
        "fenced": False,
    }.items() <= there.items()
    assert (there["entries"], there["last_entry"]) == (2, 1)
    [fragment] = said["fragments"]
    assert (fragment["entries"], fragment["below_write_quorum"], fragment["copies"]) == (
        2,
        0,
        {"1": 2},
    )
    assert said["answers"] == [{"entry": 2, "bookie": bookie.bookie_id, "says": "does not have it"}]
    text = cli.ok("explain", ledger).decode()
    assert f"bkbox ledger recover {ledger}" in text
    assert bookie.bookie_id in text
    dry = json.loads(cli.ok("recover", ledger, "--dry-run", "-o", "json"))
    assert (dry["state"], dry["end"], dry["what_to_do"]) == ("OPEN", 1, None)
    assert b"recovery closes it" in cli.ok("recover", ledger, "--dry-run")
    assert json.loads(cli.ok("show", ledger, "-o", "json"))["state"] == "OPEN", (
        "nothing was changed"
    )
    cli.ok("recover", ledger)
    closed = json.loads(cli.ok("explain", ledger, "-o", "json"))
    assert (closed["state"], closed["end"], closed["advice"]) == ("CLOSED", 1, "nothing")
    assert closed["bookies"][0]["fenced"] is True
    cli.ok("explain", ledger)


def test_only_what_cannot_be_recovered_is_ended(cli: Cli) -> None:
    ledger = cli.write(b"a\n", "--keep-open")
    assert cli.run("end", ledger).exit_code == ExitCode.USAGE, "without --accept-loss"
    refused = cli.run("end", ledger, "--accept-loss", "--yes")
    assert refused.exit_code == ExitCode.USAGE
    assert f"bkbox ledger recover {ledger}" in refused.stderr
    plan = json.loads(cli.ok("end", ledger, "--accept-loss", "--dry-run", "-o", "json"))
    assert (plan["end"], plan["acknowledged_and_lost"], plan["unreadable"]) == (0, [], [])
    assert json.loads(cli.ok("show", ledger, "-o", "json"))["state"] == "OPEN"
    assert cli.run("explain", 2**62).exit_code == ExitCode.NOT_FOUND
    assert cli.run("end", 2**62, "--accept-loss", "--yes").exit_code == ExitCode.NOT_FOUND
