"""``bkbox model-check``: the first line and the exit code, which scripts rely on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from bkbox.base.host.files import HostFiles
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from proof.cli.model_check import _states_limit
from tests.harness.documents import document


def check(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["model-check", *arguments])


def test_safe() -> None:
    result = check("--as-published", "--crashes", "0")
    assert result.stdout == "safe: 24029 distinct, 58307 generated, 28 levels\n"
    assert result.exit_code == ExitCode.OK
    assert "states/s" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "crash"),
    [
        (["--no-limbo"], "entries gone, fenced"),
        (["--no-fence"], "entries gone, in limbo"),
        (["--no-limbo", "--durable-fence", "--no-fence"], "entries gone"),
        (["--marks", "not-closed"], "entries gone"),
    ],
)
def test_broken(arguments: list[str], crash: str) -> None:
    result = check("--fold", *arguments)
    first, *trace = result.stdout.splitlines()
    assert first == "broken: no-divergence, trace of 17 states"
    assert result.exit_code == ExitCode.FAILED
    steps = [line for line in trace if re.match(r" *\d+  ", line)]
    assert [int(line.split()[0]) for line in steps] == list(range(1, 18))
    assert [line for line in steps if re.search(rf"bookie \d crashes: {crash}", line)]


def test_an_answer_as_a_document() -> None:
    safe = check("--as-published", "--crashes", "0", "--verbose", "-o", "json")
    said = document(safe.stdout, "model-check")
    assert (said["answer"], said["broken"], said["trace"]) == ("safe", None, [])
    numbers = said["statistics"]
    assert (numbers["distinct"], numbers["generated"], numbers["levels"]) == (24029, 58307, 28)
    assert safe.exit_code == ExitCode.OK
    assert "states/s" in safe.stderr

    broken = check("--fold", "--no-limbo", "-o", "json")
    said = document(broken.stdout, "model-check")
    assert (said["answer"], said["broken"]) == ("broken", "no-divergence")
    lines = [line.strip() for line in check("--fold", "--no-limbo").stdout.splitlines()[1:]]
    lines_of = []
    for number, state in enumerate(said["trace"], 1):
        lines_of += [f"{number}  {state['words']}", *state["changes"]]
    assert lines_of == lines
    assert broken.exit_code == ExitCode.FAILED

    cut = check("--states-max", "100", "-o", "yaml")
    assert yaml.safe_load(cut.stdout)["answer"] == "not exhausted"
    assert cut.exit_code == ExitCode.TRY_AGAIN


def test_not_exhausted() -> None:
    result = check("--states-max", "100", "--verbose")
    assert result.stdout.startswith("not exhausted: ")
    assert result.exit_code == ExitCode.TRY_AGAIN
    assert len(result.stderr.splitlines()) > 2
    assert "--fold" in result.stderr


def test_there_is_memory_for_what_is_searched(tmp_path: Path) -> None:
    assert (_states_limit(HostFiles()) or 0) > 100_000
    assert _states_limit(HostFiles(tmp_path)) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemFree: 1 kB\nMemAvailable:   5600 kB\n")
    assert _states_limit(HostFiles(tmp_path)) == 102_400


def test_termination() -> None:
    never = check("--termination", "1")
    assert never.stdout.startswith("never closable: ")
    assert never.exit_code == ExitCode.FAILED
    can = check("--ack-quorum", "2", "--termination", "1")
    assert can.stdout.startswith("closable: trace of 12 states\n")
    assert can.exit_code == ExitCode.OK
    done = check("--ack-quorum", "2", "--termination", "1", "-o", "json")
    said = document(done.stdout, "model-check")
    assert (said["answer"], said["broken"], len(said["trace"])) == ("closable", None, 12)
    assert done.exit_code == ExitCode.OK


def test_known_defects_are_found_when_their_mend_is_left_out() -> None:
    reads = check("--ack-quorum", "2", "--crashes", "0", "--fold", "--no-recovery-fence")
    assert reads.stdout.startswith("broken: no-divergence, trace of 14 states\n")
    floor = check("--bookies", "3", "--crashes", "0", "--fold", "--no-lac-floor")
    assert floor.stdout.startswith("broken: fragments, trace of 21 states\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--write-quorum", "3"], "write quorum 3, bookies 2"),
        (["--ack-quorum", "3"], "ack quorum is 3, write quorum 2"),
        (["--bookies", "1"], "write quorum 2, bookies 1"),
        (["--bookies", "0"], "--bookies"),
        (["--bookies", "9"], "--bookies"),
        (["--ack-quorum", "0"], "--ack-quorum"),
        (["--write-quorum", "0"], "--write-quorum"),
        (["--sends", "0"], "--sends"),
        (["--crashes", "-1"], "--crashes"),
        (["--bookies", "two"], "--bookies"),
        (["--process-crash", "--disk-loss"], "exclude each other"),
        (["--without", "D1"], "D1"),
    ],
)
def test_wrong_arguments(arguments: list[str], says: str) -> None:
    result = check(*arguments)
    assert result.exit_code == ExitCode.USAGE
    assert says in result.stderr


def test_corrections_can_be_left_out_one_by_one() -> None:
    every = ["D3", "D4", "D5", "D9", "first-holder"]
    result = check("--crashes", "0", *(word for name in every for word in ("--without", name)))
    assert result.stdout == check("--crashes", "0", "--as-published").stdout
