"""``bkbox sim``: the exit codes and the lines that scripts rely on."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from bkbox.cli.exits import ExitCode
from bkbox.cli.main import main
from bkbox.sim.breaks import BREAKS
from bkbox.sim.schedule import plan_of

QUICK = min(range(100), key=lambda seed: len(plan_of(seed).actions))
"""A seed that takes little time."""


def sim(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["sim", *arguments])


def test_a_seed_that_holds() -> None:
    result = sim("--seeds", "1", "--seed", str(QUICK))
    assert result.exit_code == ExitCode.OK
    first, *table = result.stdout.splitlines()
    assert first == f"seed {QUICK}"
    assert any(line.split() == ["seeds", "1"] for line in table)
    assert "broken" not in result.stdout


def test_a_break_that_is_noticed() -> None:
    result = sim("--seeds", "20", "--seed", "1", "--break", "no-cas", "--no-shrink")
    assert result.exit_code == ExitCode.FAILED
    lines = result.stdout.splitlines()
    assert lines[0] == "seed 1"
    told = [line for line in lines if line.startswith("broken: ")]
    assert told[0].startswith("broken: seed ")
    assert "what happened:" in lines
    assert lines[-1].startswith("again: bkbox sim --seed ")
    assert lines[-1].endswith(" --break no-cas")


def test_the_list_of_breaks() -> None:
    result = sim("--list-breaks")
    assert result.exit_code == ExitCode.OK
    assert result.stdout.splitlines() == [each.name for each in BREAKS]


def test_so_many_seeds_and_for_so_long() -> None:
    result = sim("--minutes", "5", "--seeds", "1", "--seed", str(QUICK))
    assert result.exit_code == ExitCode.OK
    assert any(line.split() == ["seeds", "1"] for line in result.stdout.splitlines())


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
