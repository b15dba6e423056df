"""Errors become one line on standard error and a documented exit code."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from bkbox import errors
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import LazyGroup

RAISED: errors.BkboxError


@click.command()
def broken() -> None:
    raise RAISED


def outcome(error: errors.BkboxError) -> tuple[int, str, str]:
    global RAISED
    RAISED = error
    group = LazyGroup("bkbox", lazy={"broken": (f"{__name__}:broken", "")})
    result = CliRunner().invoke(group, ["broken"])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError(["a: 1", "b: 2"]), ExitCode.USAGE),
        (errors.QuorumSizeError("x"), ExitCode.USAGE),
        (errors.BookieNotRunningError("x"), ExitCode.NOT_RUNNING),
        (errors.BookieUnresponsiveError("x"), ExitCode.TRY_AGAIN),
        (errors.CookieMismatchError("x"), ExitCode.REFUSED),
        (errors.BootError("x"), ExitCode.REFUSED),
        (errors.BookieRunningError("x"), ExitCode.RUNNING),
        (errors.OperatorError("x"), ExitCode.FAILED),
        (errors.NoSuchLedgerError("x"), ExitCode.NOT_FOUND),
        (errors.NoSuchEntryError("x"), ExitCode.NOT_FOUND),
        (errors.UnknownEntryError("x"), ExitCode.TRY_AGAIN),
        (errors.RecoveryAbortedError("x"), ExitCode.TRY_AGAIN),
        (errors.MetadataUnavailableError("x"), ExitCode.TRY_AGAIN),
        (errors.NotEnoughBookiesError("x"), ExitCode.TRY_AGAIN),
        (errors.LedgerFencedError("x"), ExitCode.FAILED),
        (errors.DiskFullError("x"), ExitCode.FAILED),
        (errors.BugError("x"), ExitCode.FAILED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.name,
)
def test_exit_codes(error: errors.BkboxError, code: ExitCode) -> None:
    exit_code, stdout, stderr = outcome(error)
    assert exit_code == code
    assert stdout == ""
    assert stderr.startswith("error: ")
    assert "Traceback" not in stderr


def test_every_problem_of_a_configuration_is_a_line() -> None:
    assert outcome(errors.ConfigError(["a: 1", "b: 2"]))[2] == "error: a: 1\nerror: b: 2\n"


def test_an_error_without_text_says_its_name() -> None:
    assert outcome(errors.DiskFullError())[2] == "error: DiskFullError\n"


def test_a_bug_asks_to_be_reported() -> None:
    assert "please report it" in outcome(errors.BugError("x"))[2]
