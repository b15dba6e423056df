"""``bkbox log …`` against bookies that are there."""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.client import sync
from bkbox.client.log.handler import BookKeeperHandler
from bkbox.errors import CallerError
from tests.client.tinybookie import Bookies, bookies
from tests.harness.documents import document
from tests.harness.processes import BKBOX

Log = Callable[..., Result]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Bookies]:
    with bookies(tmp_path) as found:
        yield found


@pytest.fixture
def log(made: Bookies, tmp_path: Path) -> Log:
    """``log("read", "orders")`` runs the command here; ``text`` is what it reads."""

    def run(*arguments: str, text: str | None = None, status: int = 0) -> Result:
        if text is not None:
            (tmp_path / "input").write_text(text)
            arguments = (*arguments, "--file", str(tmp_path / "input"))
        done = CliRunner().invoke(main, ["log", *arguments, "--metadata", made.uri])
        assert done.exit_code == status, done.output
        return done

    return run


def test_a_log_in_the_shell(log: Log) -> None:
    text = "".join(f"line {number}\n" for number in range(100)) + "no line end"
    done = log("write", "orders", text=text)
    assert "101 records" in done.stderr
    assert log("read", "orders").stdout == text
    assert log("tail", "orders", "-n", "2").stdout == "line 99\nno line end"
    assert log("tail", "orders").stdout.splitlines()[0] == "line 91"
    documents = [json.loads(line) for line in log("read", "orders", "--json").stdout.splitlines()]
    assert len(documents) == 101
    assert base64.b64decode(documents[5]["payload"]) == b"line 5\n"
    assert (documents[5]["writer_id"], documents[5]["sequence"]) == (None, None)
    middle = documents[40]["position"]
    assert log("read", "orders", "--from", middle).stdout.startswith("line 40\n")
    assert log("read", "orders", "--to", middle).stdout.endswith("line 39\n")
    assert log("read", "orders", "--from", "end").stdout == ""
    (listed,) = json.loads(log("list", "-o", "json").stdout)
    assert (listed["name"], listed["epoch"], len(listed["ledgers"])) == ("orders", 1, 1)
    assert "orders" in log("list").stdout
    assert middle in log("truncate", "orders", "--before", middle, "--dry-run").stderr
    log("truncate", "orders", "--before", middle, "--yes")
    assert log("read", "orders").stdout.startswith("line 40\n")
    assert "nothing was changed" in log("delete", "orders", "--dry-run").stderr
    log("delete", "orders", "--yes")
    assert json.loads(log("list", "-o", "json").stdout) == []


def test_what_was_written_as_a_document(log: Log) -> None:
    for output, epoch in (("json", 1), ("yaml", 2)):
        done = log("write", "orders", "-o", output, text="a\nb\n")
        said = {"log": "orders", "epoch": epoch, "written": 2, "repeated": None}
        assert yaml.safe_load(done.stdout) == said
        assert "2 records" in done.stderr
    assert log("write", "orders", text="c\n").stdout == ""
    for repeated in (0, 3):
        done = log("write", "orders", "--writer-id", "i", "-o", "json", text="a\nb\nc\n")
        said = document(done.stdout, "log", "write")
        assert (said["written"], said["repeated"]) == (3 - repeated, repeated)


@pytest.mark.parametrize("command", ["read", "tail"])
def test_records_as_documents(log: Log, command: str) -> None:
    log("write", "orders", "--writer-id", "i", text="a\nb\n")
    done = log(command, "orders", "-o", "json")
    lines = [document(line, "log", command) for line in done.stdout.splitlines()]
    assert [base64.b64decode(line["payload"]) for line in lines] == [b"a\n", b"b\n"]
    assert [(line["writer_id"], line["sequence"]) for line in lines] == [("i", 0), ("i", 1)]
    assert log(command, "orders", "--json").stdout == done.stdout
    assert list(yaml.safe_load_all(log(command, "orders", "-o", "yaml").stdout)) == lines


def test_what_is_wrong_is_said(log: Log) -> None:
    assert "no log orders" in log("read", "orders", status=ExitCode.NOT_FOUND).stderr
    for arguments, text in (
        (("read", "a/b"), "is no name of a log"),
        (("read", "orders", "--from", "x"), "LEDGER:ENTRY"),
        (("read", "orders", "--follow", "--to", "end"), "--follow has no end"),
        (("truncate", "orders"), "--before"),
    ):
        assert text in log(*arguments, status=ExitCode.USAGE).stderr
    log("write", "orders", text="a\n")
    done = log("truncate", "orders", "--before", "99:0", "--yes", status=ExitCode.USAGE)
    assert "behind the end" in done.stderr


def test_an_import_that_is_repeated_writes_nothing_twice(log: Log) -> None:
    lines = [f"{number}\n" for number in range(3000)]
    arguments = ("write", "orders", "--writer-id", "import", "--compression", "lz4")
    assert "2,000 records, 0 were there" in log(*arguments, text="".join(lines[:2000])).stderr
    assert "1,000 records, 2,000 were there" in log(*arguments, text="".join(lines)).stderr
    assert log("read", "orders").stdout == "".join(lines)


def test_follow_over_a_change_of_the_writer(log: Log, made: Bookies) -> None:
    log("write", "orders", text="first\n")
    command = [*BKBOX, "log", "tail", "orders", "-f", "-n", "1", "--metadata", made.uri]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert following.stdout is not None
    assert following.stdout.readline() == "first\n"
    log("write", "orders", text="second\nthird\n")
    assert [following.stdout.readline() for _ in range(2)] == ["second\n", "third\n"]
    following.kill()
    following.communicate()


def test_a_reader_that_has_enough(log: Log, made: Bookies) -> None:
    log("write", "orders", text="a line that is read\n" * 20_000)
    command = " ".join([*BKBOX, "log", "read", "orders", "--metadata", made.uri]) + " | head -n 1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("a line that is read\n", "")


def test_pythons_logging_goes_to_a_log(made: Bookies) -> None:
    script = f"""
import logging, sys
from bkbox.client.log.handler import BookKeeperHandler
handler = BookKeeperHandler({made.uri!r}, "service")
handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
logging.basicConfig(level=logging.INFO, handlers=[handler])
for number in range(500):
    logging.getLogger("app").info("line %d", number)
logging.getLogger("app").error("the %s", "end")
logging.getLogger("app").info("%d", "wrong")
logging.shutdown()
print(handler.dropped)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "0\n", done.stderr
    with sync.connect(made.uri) as client:
        lines = [record.payload.decode() for record in client.log("service").read()]
    assert lines == [*(f"INFO app line {n}" for n in range(500)), "ERROR app the end"]


def test_a_handler_never_holds_up_who_logs(made: Bookies) -> None:
    for bookie in made.bookies.values():
        bookie.hung = True
    handler = BookKeeperHandler(made.uri, "service", add_timeout_s=60)
    try:
        record = logging.LogRecord("app", logging.INFO, "", 0, "line", (), None)
        for _ in range(12_000):
            handler.emit(record)
        assert handler.dropped > 0
        for bookie in made.bookies.values():
            made.loop.call_soon_threadsafe(bookie.release)
        handler.flush()
        handler.emit(record)
        handler.flush()
    finally:
        handler.close()
    with sync.connect(made.uri) as client:
        lines = [entry.payload for entry in client.log("service").read()]
    assert any(b"lines were dropped" in line for line in lines)
    assert len(lines) == 12_001 - handler.dropped + 1


def test_a_line_that_is_too_long_is_dropped_and_holds_up_no_other(made: Bookies) -> None:
    handler = BookKeeperHandler(made.uri, "service", add_timeout_s=60)
    try:
        for text in ("before", "x" * (6 << 20), "behind", "half a pair: \ud800"):
            handler.emit(logging.LogRecord("app", logging.INFO, "", 0, text, (), None))
        handler.flush(60)
    finally:
        handler.close()
    assert handler.dropped == 1
    with sync.connect(made.uri) as client:
        found = [record.payload for record in client.log("service").read()]
    assert [line for line in found if b"dropped" not in line] == [
        b"before",
        b"behind",
        b"half a pair: \\ud800",
    ]
    assert any(b"1 lines were dropped" in line for line in found)


def test_arguments_of_the_handler() -> None:
    for uri, name, given in (
        (5, "service", {}),
        ("sqlite:x", "not/a/name", {}),
        ("sqlite:x", "service", {"options": {}}),
        ("sqlite:x", "service", {"add_timeout": 5}),
    ):
        with pytest.raises(CallerError):
            BookKeeperHandler(uri, name, **given)  # type: ignore[arg-type]
