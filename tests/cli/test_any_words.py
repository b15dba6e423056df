"""Whatever stands on a command line: it is done, or refused with a sentence. No bare exception, no hang.

A bounded run, the same each time; ``FUZZ_SECONDS=60`` for so long.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.errors import BkboxError
from tests.cli.test_command_tree import LEAVES, named
from tests.harness.fuzztime import fuzz
from tests.harness.processes import BookieProcess

ODD = st.one_of(
    st.sampled_from(
        [
            *("", "-", "--", ".", "/", "/dev/null", "0", "-1", "1e9", "nan", "inf", "9" * 30),
            *("٣", "x" * 300, "a\nb", "[/]", "\udcff", "\x1b[31m", "sqlite:", "key=", "=", "1.5"),
            *("true", "none", "all", "*", "10.0.0.5:3181", "[::1]:1", "2030-01-01", "1h", "-5s"),
        ]
    ),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
)

NOT_CARRIED_OUT = {
    *("run", "autorecovery run", "tui", "log tail", "job watch"),  # they go on until they are told
    *("demo", "sim", "model-check", "chaos check", "bench bookie", "bench client", "bench sink"),
    *("selftest", "discover"),  # they measure and listen, for seconds
    *("systemd install", "completion"),  # they write where the host keeps such files
}
ENDLESS = {"--watch", "--exit-when-healthy"}


def options_of(command: click.Command) -> list[str]:
    found = [
        word
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for word in parameter.opts
    ]
    return ["--help", *(word for word in found if word not in ENDLESS)]


@contextmanager
def bounded(seconds: int, line: list[str]) -> Iterator[None]:
    """So that a hang is a failure that names the line."""

    def hangs(_number: int, _frame: object) -> None:
        raise AssertionError(f"hangs: {line}")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_any_words_are_understood_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    @given(st.data())
    def parse(data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(LEAVES)))
        words = data.draw(
            st.lists(st.one_of(st.sampled_from(options_of(LEAVES[path])), ODD), max_size=6)
        )
        try:
            LEAVES[path].make_context(named(path), words)
        except (click.ClickException, click.exceptions.Exit, BkboxError):
            return

    fuzz(parse, 500)


def good(parameter: click.Parameter, bookie: BookieProcess) -> st.SearchStrategy[str]:
    """What such an option is for, or another that is well formed."""
    known = {
        "--config": str(bookie.config),
        "--metadata": bookie.metadata,
        "ledger_id": "7",
        "disk": str(bookie.disks[0]),
        "number": "1",
    }
    names = [*parameter.opts, parameter.name or ""]
    for name in names:
        if name in known:
            return st.just(known[name])
    if isinstance(parameter.type, click.Choice):
        return st.sampled_from([str(choice) for choice in parameter.type.choices])
    return st.sampled_from(["1", "7", "on", "name", "5s", "sqlite:other.db", "127.0.0.1:3181"])


def test_any_words_are_done_or_refused(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By commands that end by themselves, beside a bookie that does not run."""
    root = tmp_path_factory.mktemp("stopped")
    bookie = BookieProcess(root, f"sqlite:{root}/m.db").init(disks=1)
    monkeypatch.chdir(tmp_path)
    leaves = sorted(path for path in LEAVES if named(path) not in NOT_CARRIED_OUT)

    @given(st.data())
    def carry_out(data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(leaves))
        command = LEAVES[path]
        line = [*path]
        where = {parameter.name for parameter in command.params} & {"config_file", "metadata"}
        said = data.draw(st.sampled_from(sorted(map(str, where)))) if where else ""
        for parameter in command.params:
            if parameter.name in where - {said}:
                continue
            wanted = parameter.required or parameter.name == said
            if not (wanted or data.draw(st.integers(0, 5)) == 0):
                continue
            fits = data.draw(st.integers(0, 9)) > 0 if wanted else data.draw(st.booleans())
            value = data.draw(good(parameter, bookie) if fits else ODD)
            if not isinstance(parameter, click.Option):
                line.append(value)
            elif parameter.opts[0] in ENDLESS:
                continue
            elif parameter.is_flag:
                line.append(parameter.opts[0])
            else:
                line += [parameter.opts[0], value]
        with bounded(60, line):
            done = CliRunner().invoke(main, line, input="no\n")
        fine = done.exception is None or isinstance(done.exception, SystemExit)
        assert fine, f"{line}: {done.exception!r}"
        assert done.exit_code in set(ExitCode), line
        assert "Traceback" not in done.output, line
        assert "a fault of bkbox" not in done.output, line

    fuzz(carry_out, 150)
    assert os.getcwd() == str(tmp_path)
