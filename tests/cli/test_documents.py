"""What commands print with -o json on a real bookie is what ``bkbox schema`` says; YAML holds the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from bkbox.cli.main import main
from bkbox.cli.schema import commands, schema_of
from tests.harness.processes import BookieProcess
from tests.harness.waiting import wait_for

CONFIG, METADATA = ("--config", "CONFIG"), ("--metadata", "METADATA")

NEW = (
    *("--config", "FOLDER/new.toml", "--disk", "FOLDER/new"),
    *("--metadata", "sqlite:FOLDER/new.db", "--listen", "127.0.0.1:1"),
)

RUNS: dict[str, tuple[tuple[str, ...], ...]] = {
    "status": (CONFIG,),
    "doctor": (CONFIG,),
    "selftest": (("--folder", "FOLDER", "--seconds", "0.5"),),
    "debug bundle": ((*CONFIG, "--to", "FOLDER/b.tar.gz", "--unit", ""), (*CONFIG, "--dry-run")),
    "job list": (CONFIG, (*CONFIG, "--all")),
    "job show": (("1", *CONFIG),),
    "job cancel": (("PAUSED", *CONFIG, "--dry-run"),),
    "job pause": (("PAUSED", *CONFIG),),
    "job rate": (("PAUSED", "50MiB", *CONFIG),),
    "job resume": (("PAUSED", *CONFIG),),
    "health": (CONFIG,),
    "maintenance status": (CONFIG,),
    "cookie show": (CONFIG,),
    "cookie verify": (CONFIG,),
    "autorecovery status": (METADATA,),
    "autorecovery list": (METADATA,),
    "decommission": (("127.0.0.1:PORT", *METADATA, "--dry-run"),),
    "disk list": (CONFIG,),
    "disk drain": (("DISK", *CONFIG, "--dry-run"),),
    "cluster info": ((*METADATA, "--count-ledgers"),),
    "cluster list": ((*METADATA, "--all"),),
    "cluster status": (METADATA,),
    "ledger create": ((*METADATA, "-e", "1", "-w", "1", "-a", "1"),),
    "ledger list": (METADATA, (*METADATA, "--lost")),
    "ledger show": (("LEDGER", *METADATA),),
    "ledger explain": (("LEDGER", *METADATA),),
    "ledger recover": (("LEDGER", *METADATA), ("LEDGER", *METADATA, "--dry-run")),
    "ledger end": (
        ("LEDGER", *METADATA, "--accept-loss", "--dry-run"),
        (*METADATA, "--stuck", "--dry-run"),
    ),
    "ledger write": ((*METADATA, *["-e", "1", "-w", "1", "-a", "1"], "--file", "FOLDER/input"),),
    "ledger read": (("LEDGER", *METADATA),),
    "placement explain": ((*METADATA, "-E", "1", "-Q", "1", "-A", "1"),),
    "gc status": (CONFIG,),
    "gc run": ((*CONFIG, "--dry-run"),),
    "gc explain": (("1", *CONFIG),),
    "scrub status": (CONFIG,),
    "scrub run": ((*CONFIG, "--dry-run"),),
    "config validate": (CONFIG,),
    "config show": (CONFIG,),
    "config explain": (("ack_after", *CONFIG), ("disks",)),
    "config diff": (CONFIG,),
    "config reload": ((*CONFIG, "--dry-run"),),
    "init": ((*NEW, "--dry-run"), NEW),
    "cluster init": (("--metadata", "sqlite:FOLDER/none.db", "--dry-run"),),
    "ledger delete": (("LEDGER", *METADATA, "--dry-run"),),
    "disk add": (("DISK", *CONFIG, "--dry-run"),),
    "disk read-only": (("DISK", *CONFIG), ("DISK", *CONFIG, "--off")),
    "bookie read-only": (("on", *CONFIG), ("off", *CONFIG), ("on", *CONFIG, "--dry-run")),
    "maintenance on": (("--for", "1m", *CONFIG),),
    "maintenance off": (CONFIG,),
    "autorecovery disable": (METADATA, (*METADATA, "--dry-run")),
    "autorecovery enable": (METADATA,),
    "autorecovery check": ((*METADATA, "--now", "--dry-run"),),
    "man": (("FOLDER/man1",),),
}

ELSEWHERE = {
    "index rebuild": "wants a stopped bookie: below",
    "systemd install": "wants /etc: tests/systemd",
    "discover": "wants a network: tests/host",
    "bench bookie": "takes long: tests/bench",
    "bench client": "takes long: tests/bench",
    **dict.fromkeys(("log write", "log read", "log tail", "log list"), "tests/cli/log"),
    **dict.fromkeys(("log truncate", "log delete", "log forget"), "tests/cli/log"),
    "config import": "wants a file of Java's: tests/config",
    **dict.fromkeys(("takeover", "handback"), "want disks of a Java bookie: tests/takeover"),
    "sim": "tests/sim",
    "model-check": "tests/model",
    **dict.fromkeys(("chaos", "chaos check"), "take long: tests/chaos"),
    "job watch": "a document for each change: tests/cli/test_job_command_output",
    **dict.fromkeys(("disk replace", "disk remove"), "they are refused here: below"),
    "cookie repair": "wants a stopped bookie: below",
    **dict.fromkeys(("audit", "repair", "export", "import"), "long work: tests/audit"),
    "top": "it counts while it looks: tests/audit",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A bookie with a closed ledger and a job; what stands for what in a command line."""
    root = tmp_path_factory.mktemp("documents")
    bookie = BookieProcess(root, f"sqlite:{root}/m.db").init(disks=2, gc_interval_s=0).start()
    try:
        words = ["ledger", "write", "--metadata", bookie.metadata, "-e", "1", "-w", "1", "-a", "1"]
        (root / "input").write_bytes(b"a\n" + bytes(1 << 20))
        written = CliRunner().invoke(main, [*words, "--file", str(root / "input"), "-o", "json"])
        config = ("--config", str(bookie.config))
        CliRunner().invoke(main, ["job", "rate", "--all", "1KiB", *config])  # so that one goes on
        CliRunner().invoke(main, ["scrub", "run", *config])
        jobs = ["job", "list", *config, "-o", "json"]
        listed = wait_for(lambda: json.loads(CliRunner().invoke(main, jobs).stdout), "a job")
        yield {
            "CONFIG": str(bookie.config),
            "METADATA": bookie.metadata,
            "LEDGER": str(json.loads(written.stdout)["ledger_id"]),
            "FOLDER": str(root),
            "DISK": str(bookie.disks[0]),
            "PORT": str(bookie.port),
            "PAUSED": str(listed[-1]["id"]),
        }
    finally:
        bookie.ensure_gone()


def run(place: dict[str, str], command: str, words: tuple[str, ...], output: str) -> Result:
    found = [*command.split(), *words, "-o", output]
    for name, value in place.items():
        found = [word.replace(name, value) for word in found]
    return CliRunner().invoke(main, found)


SHAPES = {
    " ".join(path): each.callback.shapes
    for path, each in commands(main)
    if each.callback is not None and hasattr(each.callback, "shapes")
}


def test_every_command_that_prints_documents_is_here() -> None:
    assert {*RUNS, *ELSEWHERE} == set(SHAPES)


@pytest.mark.parametrize(
    ("command", "words"), [(name, each) for name, all_of in RUNS.items() for each in all_of]
)
def test_a_document_is_what_its_schema_says(
    place: dict[str, str], command: str, words: tuple[str, ...]
) -> None:
    result = run(place, command, words, "json")
    said = result.stdout.strip()
    assert said, result.stderr
    documents: list[Any] = (
        [json.loads(line) for line in said.splitlines()]
        if command == "ledger read"
        else [json.loads(said)]
    )
    validator = Draft202012Validator(schema_of(SHAPES[command], command))
    for document in documents:
        validator.validate(document)


@pytest.mark.parametrize("command", ["config show", "ledger show", "disk list", "cookie verify"])
def test_yaml_holds_the_same(place: dict[str, str], command: str) -> None:
    (words,) = RUNS[command]
    as_json = json.loads(run(place, command, words, "json").stdout)
    as_yaml = yaml.safe_load(run(place, command, words, "yaml").stdout)
    if command == "disk list":  # what is free changes
        as_json, as_yaml = ([each["path"] for each in found] for found in (as_json, as_yaml))
    assert as_yaml == as_json


def test_entries_as_yaml_documents(place: dict[str, str]) -> None:
    said = run(place, "ledger read", RUNS["ledger read"][0], "yaml").stdout
    assert [each["entry_id"] for each in yaml.safe_load_all(said)] == [0, 1]


def test_a_rebuilt_index(tmp_path: Path) -> None:
    bookie = BookieProcess(tmp_path, f"sqlite:{tmp_path}/m.db").init(disks=1)
    words = ["index", "rebuild", "--config", str(bookie.config)]
    assert "nothing was changed" in CliRunner().invoke(main, [*words, "--dry-run"]).stderr
    document = json.loads(CliRunner().invoke(main, [*words, "-o", "json"]).stdout)
    Draft202012Validator(schema_of(SHAPES["index rebuild"], "")).validate(document)


def test_what_was_done_is_said_in_messages_and_in_the_document(place: dict[str, str]) -> None:
    for words, dry_run in ((("on", *CONFIG, "--dry-run"), True), (("off", *CONFIG), False)):
        result = run(place, "bookie read-only", words, "json")
        said = json.loads(result.stdout)
        assert said == {"messages": result.stderr.splitlines(), "dry_run": dry_run}
        assert said["messages"]
        assert run(place, "bookie read-only", words, "table").stdout == ""


def test_what_is_refused_has_no_document(place: dict[str, str]) -> None:
    for command, words in (
        ("disk remove", ("DISK", *CONFIG)),
        ("disk replace", ("DISK", "DISK", *CONFIG, "--yes")),
    ):
        result = run(place, command, words, "json")
        assert (result.exit_code, result.stdout) == (1, ""), result.output
        assert result.stderr.splitlines()[-1].startswith("error: ")


def test_a_dry_run_that_would_end_a_drain_does_not(place: dict[str, str]) -> None:
    def state() -> str:
        return str(json.loads(run(place, "disk list", CONFIG, "json").stdout)[0]["state"])

    run(place, "disk drain", ("DISK", *CONFIG), "json")
    assert state() in ("draining", "drained")
    said = run(place, "disk drain", ("DISK", *CONFIG, "--undo", "--dry-run"), "json")
    assert "nothing was changed" in json.loads(said.stdout)["messages"][0]
    assert state() in ("draining", "drained")
    run(place, "disk drain", ("DISK", *CONFIG, "--undo"), "json")
    assert state() == "in service"


def test_cookies_repaired(tmp_path: Path) -> None:
    bookie = BookieProcess(tmp_path, f"sqlite:{tmp_path}/m.db").init(disks=2)
    (bookie.disks[1] / "VERSION").unlink()
    words = ["cookie", "repair", "--config", str(bookie.config), "--yes", "-o", "json"]
    for more, dry_run in ((["--dry-run"], True), ([], False)):
        document = json.loads(CliRunner().invoke(main, [*words, *more]).stdout)
        Draft202012Validator(schema_of(SHAPES["cookie repair"], "")).validate(document)
        assert document["dry_run"] is dry_run
        assert document["messages"][0] == "this will:"
