"""How lines of the log look, and what they never hold."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from contextvars import copy_context
from pathlib import Path

import pytest

from bkbox.base.logs import LogSettings
from bkbox.base.logs.rendering import formatter
from bkbox.base.logs.trace import CURRENT_CONNECTIONS, present


def line(layout: str, text: str, *values: object, journal: bool = False, **facts: object) -> str:
    record = logging.getLogger("bkbox.x").makeRecord(
        "bkbox.x", logging.WARNING, __file__, 1, text, values, None, extra=facts
    )
    return formatter("worker /d", layout, journal=journal).format(record)  # type: ignore[arg-type]


def test_json() -> None:
    found = json.loads(line("json", "disk %s is full", "/d", ledger=7))
    moment = found.pop("timestamp")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", moment)
    assert found == {
        "event": "disk /d is full",
        "level": "warning",
        "logger": "bkbox.x",
        "process": "worker /d",
        "ledger": 7,
    }


def test_console_is_one_plain_line() -> None:
    found = line("console", "disk %s is full", "/d", ledger=7)
    assert "disk /d is full" in found
    assert "ledger=7" in found
    assert "warning" in found
    assert "\n" not in found
    assert "\x1b" not in found


@pytest.mark.parametrize("layout", ["console", "json"])
def test_the_journal_gets_priorities_and_no_time(layout: str) -> None:
    found = line(layout, "two\nlines", journal=True)
    assert all(each.startswith("<4>") for each in found.splitlines())
    assert not re.search(r"\d{4}-\d\d-\d\dT", found)


@pytest.mark.parametrize("layout", ["console", "json"])
def test_no_secrets(layout: str) -> None:
    found = line(
        layout,
        "cannot reach %s",
        "zk://me:s3cret@h:1/l",
        admin_token="s3cret",
        header="Bearer s3cretly",
    )
    assert "s3cret" not in found


def test_what_is_under_way() -> None:
    def go(connections: list[int]) -> str:
        CURRENT_CONNECTIONS.set(lambda: connections)
        return present()

    assert present() == ""
    assert copy_context().run(go, [9, 5, 9]) == "c5+c9"
    assert copy_context().run(go, list(range(20))).endswith("+c7+12 more")


def said_by(program: str) -> str:
    """On standard error, by a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stderr


def test_a_line_that_cannot_be_made_and_an_exception() -> None:
    program = (
        "import logging; from bkbox.base import logs; logs.begin('p', logs.LogSettings('info', 'json'));"
        "log = logging.getLogger('x'); log.warning('%d', 'no number');\n"
        "try: 1 / 0\nexcept ZeroDivisionError: log.exception('it failed')\n"
        "log.warning('the last line')"
    )
    said = said_by(program)
    first, *_, failed, last = said.splitlines()
    assert "cannot be made" in first
    assert "ZeroDivisionError" in json.loads(failed)["exception"]
    assert json.loads(last)["event"] == "the last line"


def test_settings_are_text_and_back() -> None:
    for settings in (LogSettings(), LogSettings("debug", "json")):
        assert LogSettings.from_text(str(settings)) == settings


PROGRAM = (
    "import logging, sys; from bkbox.base import logs; logs.begin('p', logs.LogSettings());"
    "assert 'structlog' not in sys.modules;"
    "logging.getLogger('kazoo').info('no'); logging.getLogger('x').info('yes')"
)


def test_a_process_loads_structlog_with_its_first_line() -> None:
    said = said_by(PROGRAM)
    assert "yes" in said
    assert "no" not in said.replace("None", "")


WITHOUT_DESCRIPTORS = (
    "import logging, resource, time; from bkbox.base import logs; logs.begin('p', logs.LogSettings());"
    "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE);"
    "resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard)); logging.getLogger('x').info('first');"
    "time.sleep(0.5); resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard));"
    "logging.getLogger('x').info('second')"
)


def test_without_descriptors_the_lines_come_later() -> None:
    said = said_by(WITHOUT_DESCRIPTORS)
    assert "Traceback" not in said
    assert [line.split()[3] for line in said.splitlines()] == ["first", "second"]


def test_under_the_journal(tmp_path: Path) -> None:
    """systemd names the device and inode of what is standard error."""
    with (tmp_path / "log").open("w") as log:
        found = os.fstat(log.fileno())
        for stream, prefix in ((f"{found.st_dev}:{found.st_ino}", "<6>"), ("1:2", "")):
            log.truncate(0)
            log.seek(0)
            subprocess.run(
                [sys.executable, "-c", PROGRAM],
                env={**os.environ, "JOURNAL_STREAM": stream},
                stderr=log,
                check=True,
            )
            assert (tmp_path / "log").read_text().startswith("<") == bool(prefix)
            assert (tmp_path / "log").read_text().startswith(prefix)
