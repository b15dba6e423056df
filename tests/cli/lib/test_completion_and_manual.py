"""What shells complete, in real shells where they are there, and the manual pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bkbox.cli.lib.man_pages import pages
from bkbox.cli.main import COMMANDS, main

BIN = Path(sys.executable).parent


def run(*words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{BIN}:{os.environ['PATH']}"
    return subprocess.run(
        words,
        input=stdin,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def complete(*words: str) -> list[str]:
    """What bash is offered; the last word is what has been typed of it."""
    line = " ".join(words)
    found = run(
        "bkbox", _BKBOX_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1)
    )
    return [each.partition(",")[2] for each in found.stdout.splitlines()]


def needed(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


def script(shell: str) -> str:
    return CliRunner().invoke(main, ["completion", shell]).output


def test_commands_options_and_keys() -> None:
    assert complete("bkbox", "co") == [name for name in COMMANDS if name.startswith("co")]
    assert complete("bkbox", "config", "ex") == ["explain"]
    assert complete("bkbox", "config", "explain", "readonly") == ["readonly_while_in_limbo"]
    assert complete("bkbox", "status", "--out") == ["--output"]
    assert complete("bkbox", "status", "-o", "j") == ["json"]


def test_a_first_word_imports_no_command() -> None:
    program = (
        "import os, sys; os.environ |= {'_BKBOX_COMPLETE': 'bash_complete', 'COMP_WORDS': 'bkbox c', "
        "'COMP_CWORD': '1'}\n"
        "from bkbox.cli.main import main\n"
        "try: main(prog_name='bkbox')\n"
        "except SystemExit: pass\n"
        "print(*sorted(n for n in sys.modules if n.startswith('bkbox.')), file=sys.stderr)"
    )
    done = run(sys.executable, "-c", program)
    assert "config" in done.stdout
    assert set(done.stderr.split()) <= {
        *("bkbox.native", "bkbox.errors"),
        *("bkbox.base", "bkbox.base.host", "bkbox.base.host.interpreter"),
        "bkbox.base.host.streams",
        *("bkbox.cli", "bkbox.cli.main", "bkbox.cli.lib", "bkbox.cli.lib.exit_codes"),
    }


def test_bash() -> None:
    needed("bash")
    typed = (
        "COMP_WORDS=(bkbox config va); COMP_CWORD=2; _bkbox_completion bkbox; echo ${COMPREPLY[@]}"
    )
    assert run("bash", "-c", f"{script('bash')}\n{typed}").stdout == "validate\n"


def test_fish() -> None:
    needed("fish")
    typed = "complete -C 'bkbox config va'"
    assert run("fish", "-N", "-c", f"{script('fish')}\n{typed}").stdout.startswith("validate\t")


def test_zsh(tmp_path: Path) -> None:
    needed("zsh")
    (tmp_path / "_bkbox").write_text(script("zsh"))
    typed = (
        f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -d {tmp_path}/dump; "
        "print ${_comps[bkbox]}"
    )
    assert run("zsh", "-f", "-c", typed).stdout == "_bkbox\n"
    run("zsh", "-n", str(tmp_path / "_bkbox"))


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man") / "man1"
    assert CliRunner().invoke(main, ["man", str(folder)]).exit_code == 0
    return folder


def test_there_is_a_page_for_each_command(manual: Path) -> None:
    names = {path.name for path in manual.iterdir()}
    assert {"bkbox.1", "bkbox-config.1", "bkbox-config-show.1", "bkbox-run.1"} <= names
    assert {f"bkbox-{name}.1" for name in COMMANDS} <= names
    text = (manual / "bkbox-config-show.1").read_text()
    for part in (
        ".SH NAME\nbkbox\\-config\\-show \\- Show every key",
        ".B bkbox config show [OPTIONS]",
        ".B \\-o, \\-\\-output [table|json|yaml]",
        ".SH EXAMPLE\n.nf\nbkbox config show \\-\\-config bookie.toml",
        ".BR bkbox-config (1)",
    ):
        assert part in text
    assert ".SH EXIT CODES" in (manual / "bkbox.1").read_text()


def test_the_pages_are_without_faults(manual: Path) -> None:
    needed("mandoc")
    done = subprocess.run(
        ["mandoc", "-Tlint", "-W", "warning", *sorted(map(str, manual.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
    )
    faults = [line for line in done.stdout.splitlines() if "missing date" not in line]
    assert faults == []


def test_no_line_of_text_is_taken_for_a_request() -> None:
    for name, text in pages(main):
        for line in text.splitlines():
            assert not line.startswith("'"), name
            if line.startswith("."):
                assert line.split()[0] in (".TH", ".SH", ".B", ".BR", ".TP", ".PP", ".nf", ".fi"), (
                    line
                )
