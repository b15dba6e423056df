"""A bookie whose admin API cannot be opened as configured does not start, and says what to do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bkbox.config import load as configuration
from tests.harness.processes import BookieProcess, bkbox


@pytest.fixture
def bookie(tmp_path: Path) -> BookieProcess:
    return BookieProcess(tmp_path, f"sqlite:{tmp_path}/cluster.db").init(disks=1)


def add_keys(bookie: BookieProcess, *lines: str) -> None:
    bookie.config.write_text(bookie.config.read_text() + "\n".join(["", *lines, ""]))


def refused(bookie: BookieProcess) -> str:
    done = bkbox("run", "--config", str(bookie.config), check=False)
    assert done.returncode not in (0, 1)
    assert not (bookie.disks[0] / "DIRTY").exists(), "nothing was begun"
    return done.stderr


def test_a_port_without_a_token_is_a_problem_of_the_configuration(bookie: BookieProcess) -> None:
    add_keys(bookie, 'http_listen = "127.0.0.1:0"')
    (problem,) = configuration.validate(bookie.config, {})
    assert "http_listen needs http_token_file" in problem.text
    assert "http_listen needs http_token_file" in refused(bookie)


def test_a_token_that_others_may_read_stops_the_start(
    bookie: BookieProcess, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("t" * 32)
    token.chmod(0o644)
    add_keys(bookie, 'http_listen = "127.0.0.1:0"', f'http_token_file = "{token}"')
    assert "chmod 600" in refused(bookie)


def test_a_port_that_is_taken_stops_the_start(bookie: BookieProcess, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t" * 32)
    token.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        add_keys(bookie, f'http_listen = "127.0.0.1:{port}"', f'http_token_file = "{token}"')
        assert "Change `http_listen`" in refused(bookie)
