"""Counts, rates and errors in words."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import bkbox
from bkbox.base.text import counted, error_text, plural_of, quoted, rate_of, rate_text

SOURCES = Path(bkbox.__file__).parent
PROOF_COMMANDS = SOURCES.parent / "proof" / "cli"

OWN_WORDS = ("bench", "demo")
"""Packages whose counts are never one, or that are not for operators."""

NOUNS = ("ledgers", "entries", "copies", "segments", "steps", "disks", "records", "events")


def test_one_is_singular() -> None:
    assert [counted(n, "ledger") for n in (0, 1, 2000)] == [
        "0 ledgers",
        "1 ledger",
        "2,000 ledgers",
    ]
    assert [counted(n, "entry", "are") for n in (1, 2)] == ["1 entry is", "2 entries are"]
    assert plural_of("more entry") == "more entries"


def test_rates() -> None:
    rates = {
        "unlimited": 0,
        "0": 0,
        "1B": 1,
        "2KiB/s": 2048,
        "3mib": 3 << 20,
        "20 MB/s": 20_000_000,
    }
    assert {text: rate_of(text) for text in rates} == rates
    for wrong in ("50", "-1B", "1.5MiB", "50 MBit", "none", "", "٣B", "1B/m", "5ib"):
        with pytest.raises(ValueError, match="is not a rate: write it as 20MB/s or 20MiB/s"):
            rate_of(wrong)


def test_a_rate_is_printed_as_it_was_typed() -> None:
    for text in ("20MB/s", "20MiB/s", "1GiB/s", "1500kB/s", "1537B/s", "unlimited"):
        assert rate_text(rate_of(text)) == text
    assert rate_text(20_000_001) == "20000001B/s"


def test_an_error_is_never_its_repr() -> None:
    assert error_text(TimeoutError("timed out")) == "timed out"
    assert error_text(TimeoutError()) == "no answer in time"
    assert error_text(ConnectionResetError()) == "connection reset"
    assert error_text(OSError(28, "No space left on device")) == "No space left on device"
    assert error_text(FileNotFoundError(2, "No such file", "/x")) == "No such file: /x"
    assert error_text(KeyError("name")) == "name is missing"


def uncounted(source: Path) -> Iterator[str]:
    """Numbers in texts for people with a noun that stays plural for one."""
    for node in ast.walk(ast.parse(source.read_text())):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                words = str(text.value).removeprefix(" ").replace(",", " ").split(" ")
                if str(text.value)[:1] == " " and words[0] in NOUNS:
                    yield f"{source}:{node.lineno}: {ast.unparse(value.value)} {words[0]}"


def test_every_count_in_a_message_has_its_singular() -> None:
    found = [
        where
        for root in (SOURCES, PROOF_COMMANDS)
        for source in sorted(root.rglob("*.py"))
        if source.relative_to(root).parts[0] not in OWN_WORDS
        for where in uncounted(source)
    ]
    assert found == [], "use bkbox.base.text.counted"


# ---- no repr ----------------------------------------------------------------------------------------

ROOTS = (SOURCES, PROOF_COMMANDS, SOURCES.parent / "tui" / "bkbox_tui", SOURCES.parent / "spark")
SAYS_REPR = {
    "words.py",  # the one place that quotes
    "values.py",  # a __repr__ itself, and numbers of TOML
    "__init__.py",  # the AttributeError of a module, as Python words it
    "message.py",  # a __repr__ itself
    "redaction.py",  # finds a secret in whatever form it has
    *("dirty_marker.py", "supervisor.py"),
    "response_sender.py",  # the end of a link between processes, for the maintainers of bkbox
}


def reprs(source: Path) -> Iterator[str]:
    """Where a text is made with the repr of something, or with an error as Python words it."""
    tree = ast.parse(source.read_text())
    for node in ast.walk(tree):
        what = ""
        if isinstance(node, ast.FormattedValue) and node.conversion in (ord("r"), ord("a")):
            what = f"{{{ast.unparse(node.value)}!r}}"
        elif isinstance(node, ast.Name) and node.id in ("repr", "ascii"):
            what = node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "%r" in node.value:
            what = "%r"
        elif isinstance(node, ast.ExceptHandler) and node.name and foreign(node.type):
            raw = sorted({ast.unparse(each) for each in texts_of(node)})
            what = ", ".join(raw)
        if what:
            yield f"{source}:{node.lineno}: {what}"


FOREIGN = {
    *("OSError", "TimeoutError", "KeyError", "LookupError", "Exception", "BaseException"),
    *("ConnectionError", "EOFError", "IncompleteReadError", "SSLError", "HTTPException"),
}
"""Errors that say nothing, a number in brackets, or a repr, where they are made a text."""


def foreign(kind: ast.expr | None) -> bool:
    if kind is None:
        return True
    if isinstance(kind, ast.Tuple):
        return any(map(foreign, kind.elts))
    return (kind.attr if isinstance(kind, ast.Attribute) else getattr(kind, "id", "")) in FOREIGN


def texts_of(handler: ast.ExceptHandler) -> Iterator[ast.expr]:
    for statement in handler.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.FormattedValue):
                value: ast.expr = node.value
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "str" and node.args:
                value = node.args[0]
            else:
                continue
            if isinstance(value, ast.Name) and value.id == handler.name:
                yield node


def test_no_message_has_the_repr_of_an_object() -> None:
    found = [
        where
        for root in ROOTS
        for source in sorted(root.rglob("*.py"))
        if source.name not in SAYS_REPR
        for where in reprs(source)
    ]
    assert found == [], "use quoted or error_text of bkbox.base.text"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("it", "'it'"),
        ("a\x1b[2J\n", "'a\\x1b[2J\\n'"),
        (b"bytes", "'bytes'"),
        (b"\xff\x00", "0xff00"),
        (True, "true"),
        (None, "null"),
        (1.5, "1.5"),
        (["a", 1, {"b": None}], "['a', 1, {'b': null}]"),
        (Path("/a b"), "/a b"),
        (TimeoutError("timed out"), "timed out"),
        (object(), "a value of type object"),
    ],
)
def test_what_is_quoted(value: object, text: str) -> None:
    assert quoted(value) == text
