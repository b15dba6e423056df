"""``bkbox sim``: the exit codes and the lines that scripts rely on."""

from __future__ import annotations

import functools

import pytest
import yaml
from click.testing import CliRunner, Result

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from proof.sim.mutations.safety_mutations import BREAKS, BY_NAME
from proof.sim.plan.schedule import plan_of
from tests.harness.documents import document

pytestmark = pytest.mark.usefixtures("nobody_is_left")


@functools.cache
def quick() -> str:
    """A seed that takes little time."""
    return str(min(range(100), key=lambda seed: len(plan_of(seed).actions)))


def sim(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["sim", *arguments])


def test_a_seed_that_holds() -> None:
    """So many seeds, and for so long: whichever ends first."""
    result = sim("--minutes", "5", "--seeds", "1", "--seed", quick())
    assert result.exit_code == ExitCode.OK
    first, *table = result.stdout.splitlines()
    assert first == f"seed {quick()}"
    assert any(line.split() == ["seeds", "1"] for line in table)
    assert "broken" not in result.stdout


def test_the_list_of_breaks() -> None:
    result = sim("--list-breaks")
    assert result.exit_code == ExitCode.OK
    assert result.stdout.splitlines() == [each.name for each in BREAKS]
    listed = document(sim("--list-breaks", "-o", "json").stdout, "sim")
    assert listed == [{"name": each.name, "words": each.words} for each in BREAKS]


@pytest.mark.slow
def test_a_seed_that_holds_as_a_document() -> None:
    words = ("--seed", quick(), "-o")
    result = sim(*words, "json", "--trace")
    assert result.exit_code == ExitCode.OK
    assert result.stderr == f"seed {quick()}\n"
    said = document(result.stdout, "sim")
    assert list(said) == ["seed", "totals", "broken", "trace"]
    assert (said["seed"], said["broken"]) == (int(quick()), None)
    assert (said["totals"]["seeds"], said["totals"]["events"] > 0) == (1, True)
    assert said["trace"][0].keys() == {"at", "who", "what"}
    again = yaml.safe_load(sim(*words, "yaml").stdout)
    assert (list(again), again["trace"]) == (list(said), None)
    assert again["totals"]["events"] == said["totals"]["events"]


@pytest.mark.slow
def test_a_break_that_is_noticed_as_lines_and_as_a_document() -> None:
    words = ("--seeds", "20", "--seed", "1", "--break", "no-cas", "--no-shrink")
    result = sim(*words, "-o", "json")
    assert result.exit_code == ExitCode.FAILED
    said = document(result.stdout, "sim")["broken"]
    plain = sim(*words)
    assert plain.exit_code == ExitCode.FAILED
    lines = plain.stdout.splitlines()
    assert lines[0] == "seed 1"
    violation = f"{said['violation']['name']}: {said['violation']['words']}"
    assert f"broken: seed {said['seed']}: {violation}" in lines
    assert f"broken: seed {said['seed']}: {violation}" in result.stderr
    assert said["violation_then"] == said["violation"], "nothing was left out"
    assert said["planned"] == len(said["actions"])
    assert said["actions"][0]["kind"] in "\n".join(lines)
    happened = lines[lines.index("what happened:") + 1 : -2]
    assert len(said["trace"]) == len(happened)
    assert lines[-1] == f"again: {said['again']}"
    assert lines[-1].startswith("again: bkbox sim --seed ")
    assert lines[-1].endswith(" --break no-cas")


@pytest.mark.slow
def test_every_break_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {name: BY_NAME[name] for name in ("no-cas", "no-phase-one")}  # all of them take long
    monkeypatch.setattr("proof.cli.sim.BY_NAME", some)
    result = sim("--every-break", "--seed", "1", "-o", "json")
    assert result.exit_code == ExitCode.FAILED
    said = document(result.stdout, "sim")
    assert (said["seed"], said["seeds"]) == (1, 1)
    found, missed = said["breaks"]
    assert (found["name"], found["seed"]) == ("no-cas", 1)
    assert (missed["name"], missed["seed"], missed["violation"]) == ("no-phase-one", None, None)
    progress = result.stderr.splitlines()
    assert progress[0].endswith(f"{found['violation']['name']}: {found['violation']['words']}")
    assert "not noticed by 1 seeds" in progress[1]
    assert progress[2] == "1 of 2 are noticed"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seeds", "0"], "--seeds"),
        (["--seed", "-1"], "--seed"),
        (["--seeds", "many"], "--seeds"),
        (["--minutes", "0"], "--minutes"),
        (["--jobs", "0"], "--jobs"),
        (["--break", "no-such-measure"], "no-fence-on-boot"),
        (["--break", "no-limbo", "--jobs", "2"], "--jobs"),
        (["--every-break", "--break", "no-limbo"], "--every-break"),
        (["--every-break", "--minutes", "1"], "--every-break"),
    ],
)
def test_wrong_arguments(arguments: list[str], says: str) -> None:
    result = sim(*arguments)
    assert result.exit_code == ExitCode.USAGE
    assert says in result.stderr
    assert result.stdout == ""
