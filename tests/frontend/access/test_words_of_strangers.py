"""What clients say of themselves: plugins that cannot deal with it, who says it twice, and how it looks in the log."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from pathlib import Path

import pytest

from bkbox.base.logs.rendering import formatter
from bkbox.errors import AuthenticationError
from bkbox.security import digest_md5, tokens
from bkbox.security.exchange import Step
from tests.frontend.access.test_door import run
from tests.frontend.inprocess import InProcessBookie
from tests.harness import raw
from tests.harness.raw import RawClient
from tests.harness.raw3 import EOK, EUA
from tests.security.certificates import Authority
from tests.security.secured import USERS, Visitor, client_tls, order

READER = order(plugins=("sasl", "token"), roles=("reader=read", "bookkeeper=admin"))


# ---- plugins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [ValueError("odd"), RecursionError(), KeyError("user"), MemoryError(), AssertionError()],
)
def test_a_plugin_that_fails_ends_one_connection(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    real = tokens.Server.step

    def step(server: tokens.Server, payload: bytes) -> Step:
        if b"odd one" in payload:
            raise error
        return real(server, payload)

    monkeypatch.setattr(tokens.Server, "step", step)

    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as inside:
            assert inside.log_in_with_token() == EOK
            with Visitor(bookie.port) as odd:
                assert odd.auth(tokens.PLUGIN, b"odd one")[0] == EUA
                assert odd.is_closed()
            assert inside.add3(1, 0) == EOK
            with Visitor(bookie.port) as late:
                assert late.log_in_with_token() == EOK

    run(tmp_path, READER, story)
    assert "plugin bkbox-token failed" in caplog.text


LONG = {
    "quotes": b'a="' + b'\\"' * 2000,
    "no end of a quote": b'a="' + b"\\" * 2001,
    "commas": b"," * 4000,
    "names": b"a" * 4000,
    "blanks": b" " * 4000,
    "directives": b",".join(b"a%d=b" % number for number in range(500)),
    "brackets": b"[" * 4000,
    "objects": b'{"user":' * 500,
    "digits": b'{"user":"a","nonce":' + b"9" * 4000 + b"}",
    "halves of characters": b'{"user":"\\ud800","nonce":"cccccccccccccccc"}',
    "as much as a frame holds": b"x" * 65_000,
}


@pytest.mark.parametrize("payload", LONG.values(), ids=LONG)
def test_no_message_takes_a_plugin_long(payload: bytes) -> None:
    """The front-end has one thread: a plugin that hung would hang for all. None waits for anything, and no message of
    the size that they take keeps them for long."""
    began = time.process_time()
    for server, before in (
        (tokens.Server(USERS, "n" * 32), None),
        (tokens.Server(USERS, "n" * 32), tokens.Client("reader", "x" * 20, "c" * 32).begin()),
        (digest_md5.Server(USERS, "n" * 32), b""),
    ):
        if before is not None:
            server.step(before)
        with pytest.raises(AuthenticationError):
            server.step(payload)
    assert time.process_time() - began < 0.2


def test_who_says_again_who_he_is_stays_who_he_was(tmp_path: Path) -> None:
    """Whatever follows a proof, also another's that is right: rights are those of the first."""

    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client, Visitor(bookie.port) as other:
            assert other.log_in_with_token() == EOK
            assert other.add3(1, 0) == EOK
            assert client.log_in_with_token("reader") == EOK
            for again in (
                lambda: client.log_in_with_token("bookkeeper"),
                lambda: client.log_in_with_sasl("bookkeeper"),
                lambda: client.log_in_with_token("bookkeeper", "a wrong secret"),
            ):
                with suppress(AuthenticationError, AssertionError):
                    again()
                assert client.add3(1, 1) == EUA
                assert client.fence3(1).status == EUA
                assert client.read3(1, 0).status == EOK
            client.send(raw.add_frame(1, 1, b"x"))
            assert client.answer().code == raw.EUA, "nor in version 2"
            assert other.add3(1, 1) == EOK

    run(tmp_path, READER, story)


# ---- in the log -------------------------------------------------------------------------------------

NASTY = "x\r\n2030-01-01T00:00:00Z [error] forged\x1b[2J\x1b]0;title\x07\x9b31m\u202e\u2028\x00\x7f"


def lines_of(records: list[logging.LogRecord], layout: str) -> list[str]:
    render = formatter("frontend", layout, journal=False)
    return [render.format(record) for record in records]


def is_plain(line: str) -> bool:
    """Nothing in it that a terminal would obey."""
    return all(char.isprintable() for char in line)


@pytest.mark.parametrize("layout", ["console", "json"])
def test_names_of_strangers_write_no_lines_of_their_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, layout: str
) -> None:
    def story(bookie: InProcessBookie) -> None:
        for plugin in (tokens.PLUGIN, NASTY):
            with Visitor(bookie.port) as client, suppress(EOFError):
                client.auth(plugin, tokens.Client(NASTY, "x" * 20, "c" * 32).begin())
                client.auth(plugin, b'{"proof": "x"}')
        with Visitor(bookie.port) as client, suppress(EOFError):
            client.log_in_with_sasl(NASTY, "y" * 20)
        with RawClient(bookie.port) as old, suppress(EOFError):
            name = NASTY.encode()
            message = b"\x0a" + bytes((len(name),)) + name + b"\x12\x00"
            body = b"\x02\x03\0\0" + message
            old.send(len(body).to_bytes(4, "big") + body)
            old.frame()

    with caplog.at_level(logging.DEBUG):
        run(tmp_path, READER, story)
    lines = lines_of(caplog.records, layout)
    assert any("forged" in line for line in lines), "or this looks at nothing"
    assert all(is_plain(line) for line in lines if "forged" in line)


def test_a_certificate_with_lines_in_its_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path / "authority")
    name = "eve\r\nforged\x1b[2J"
    admit = order(
        authority,
        authority.issue("bookie"),
        tls="required",
        clients="required",
        plugins=("certificate",),
        roles=("alice=read",),
    )
    pair = authority.issue(name, ["127.0.0.1"], file="eve")

    def story(bookie: InProcessBookie) -> None:
        with Visitor(bookie.port) as client:
            client.begin_tls(client_tls(authority, pair))
            assert client.add3(1, 0) == EUA

    run(tmp_path, admit, story)
    lines = lines_of(caplog.records, "console")
    assert any("forged" in line for line in lines)
    assert all(is_plain(line) for line in lines if "forged" in line)


@pytest.mark.parametrize("layout", ["console", "json"])
@pytest.mark.parametrize("how", ["text", "argument", "field", "exception"])
def test_whatever_way_it_gets_into_a_line(layout: str, how: str) -> None:
    """Also by what says no ``repr``: texts of errors, fields, exceptions of libraries."""
    logger = logging.getLogger("bkbox.x")
    heard: list[logging.LogRecord] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record)

    ear = Ear()
    logger.addHandler(ear)
    try:
        says: dict[str, Callable[[], None]] = {
            "text": lambda: logger.warning(NASTY),
            "argument": lambda: logger.warning("it said %s", NASTY),
            "field": lambda: logger.warning("it said", extra={"what": NASTY}),
            "exception": lambda: _failed(logger),
        }
        says[how]()
    finally:
        logger.removeHandler(ear)
    [line] = lines_of(heard, layout)
    assert "forged" in line
    if how == "exception" and layout == "console":
        first, *traceback = line.split("\n")
        assert all(each.startswith("    ") for each in traceback)
        line = first + "".join(traceback)
    assert is_plain(line)


def _failed(logger: logging.Logger) -> None:
    with redirect_stderr(io.StringIO()):
        try:
            raise ValueError(NASTY)
        except ValueError:
            logger.exception("it failed")
