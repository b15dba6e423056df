"""Exit codes, and their mapping from errors of bkbox."""

from __future__ import annotations

from enum import IntEnum

import click

from bkbox import errors


class ExitCode(IntEnum):
    """Exit codes. Scripts rely on these numbers: their meaning never changes."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_RUNNING = 3
    REFUSED = 4
    RUNNING = 5
    NOT_FOUND = 6
    TRY_AGAIN = 7
    LOSS = 8


MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "failed, or the answer to a question was no",
    ExitCode.USAGE: "wrong arguments or configuration",
    ExitCode.NOT_RUNNING: "the bookie is not running",
    ExitCode.REFUSED: "the bookie refuses to start, or its cookies do not match",
    ExitCode.RUNNING: "the bookie is running, or something else holds its disks: stop it first",
    ExitCode.NOT_FOUND: "no such ledger, entry, segment or job",
    ExitCode.TRY_AGAIN: "not known now (bookies or metadata store unreachable): try again",
    ExitCode.LOSS: "read to its end, and the ledger was ended with loss accepted (read --strict)",
}

# The first match counts, so subclasses come before their base classes.
_BY_ERROR: tuple[tuple[type[errors.BkboxError], ExitCode], ...] = (
    (errors.NoSuchJobError, ExitCode.NOT_FOUND),
    (errors.NoSuchSegmentError, ExitCode.NOT_FOUND),
    (errors.CallerError, ExitCode.USAGE),
    (errors.BookieNotRunningError, ExitCode.NOT_RUNNING),
    (errors.BookieUnresponsiveError, ExitCode.TRY_AGAIN),
    (errors.CookieMismatchError, ExitCode.REFUSED),
    (errors.BootError, ExitCode.REFUSED),
    (errors.BookieRunningError, ExitCode.RUNNING),
    (errors.NoSuchLedgerError, ExitCode.NOT_FOUND),
    (errors.NoSuchLogError, ExitCode.NOT_FOUND),
    (errors.LogLedgerLostError, ExitCode.NOT_FOUND),
    (errors.NoSuchEntryError, ExitCode.NOT_FOUND),
    (errors.UnknownEntryError, ExitCode.TRY_AGAIN),
    (errors.RecoveryAbortedError, ExitCode.TRY_AGAIN),
    (errors.NotEnoughBookiesError, ExitCode.TRY_AGAIN),
    (errors.MetadataUnavailableError, ExitCode.TRY_AGAIN),
    (errors.ConnectionLostError, ExitCode.TRY_AGAIN),
    (errors.RequestTimeoutError, ExitCode.TRY_AGAIN),
    (errors.ChaosError, ExitCode.TRY_AGAIN),
)


def exit_code(error: errors.BkboxError) -> ExitCode:
    """The exit code for an error."""
    for kind, code in _BY_ERROR:
        if isinstance(error, kind):
            return code
    return ExitCode.FAILED


def host_error(error: OSError) -> errors.HostError:
    """Converts an error of the operating system; the message names the file."""
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    from bkbox.base.text import reason_of  # not needed for a help page

    return errors.HostError(": ".join([*names, reason_of(error)]))


def report(error: errors.BkboxError) -> None:
    """Prints ``error: …`` on standard error, a line for each line of the text."""
    # not needed for `--help`, which has to be fast
    from bkbox.base.commandline import shortened
    from bkbox.base.logs.control import in_one_line

    for line in (shortened(str(error)) or type(error).__name__).splitlines():
        click.echo(f"error: {in_one_line(line)}", err=True)
    if isinstance(error, errors.BugError):
        click.echo("this is a fault of bkbox itself: please report it", err=True)


def epilog() -> str:
    """The table of exit codes for ``bkbox --help``."""
    lines = [f"  {code.value}  {meaning}" for code, meaning in MEANINGS.items()]
    return "\b\nExit codes:\n" + "\n".join(lines)
