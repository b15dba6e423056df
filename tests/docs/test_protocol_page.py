"""docs/protocol.md says what the code and the golden vectors say: examples, tables of fields, codes, paths."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import pytest

from bkbox.base.limits import FRAME_BYTES_MAX, LONG_POLL_MS_MAX, LONG_POLLS_MAX
from bkbox.wire import auth, v2, v3_format
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager, hmac_key, master_key
from bkbox.wire.metadata import cookie, ledger_metadata, service_info, underreplication
from bkbox.wire.metadata.ledger import DigestType, LedgerState
from bkbox.wire.metadata.paths import PathLayout, ledger_path
from bkbox.wire.protobuf import Field, Kind, Label, Message
from tests.vectors import check

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
VECTORS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "tests/wire/vectors").glob("*.json"))
}


# ---- examples -----------------------------------------------------------------------------------


class Example(NamedTuple):
    """One fenced block; ``case`` is a name, or a group and a position in it."""

    form: str
    file: str
    case: str
    field: str
    lines: list[str]


EXAMPLES = [
    Example(match[1], match[2], match[3], match[4] or "", match[5].splitlines())
    for match in re.finditer(
        r"^```(example|example-text) (\S+) (\S+)(?: (\S+))?\n(.*?)^```$",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
]
_IDS = [f"{example.file}:{example.case}{example.field}" for example in EXAMPLES]


def _case(example: Example) -> dict[str, Any]:
    content = VECTORS[example.file]
    if "/" in example.case:
        group, index = example.case.split("/")
        return content[group][int(index)]  # type: ignore[no-any-return]
    (found,) = (case for case in content["cases"] if case["name"] == example.case)
    return found  # type: ignore[no-any-return]


def _shown_bytes(example: Example) -> bytes:
    """The hex at the start of each line, up to two blanks; indents mean nothing."""
    shown = [re.split(" {2,}", line.strip())[0] for line in example.lines]
    assert all(re.fullmatch("[0-9a-f ]+", text) for text in shown), shown
    return bytes.fromhex("".join(shown))


def _shown_text(example: Example) -> str:
    return "".join(example.lines).replace("⇥", "\t").replace("⏎", "\n")


def test_there_are_examples_of_every_kind() -> None:
    assert {example.file for example in EXAMPLES} == VECTORS.keys()
    assert len(EXAMPLES) == PAGE.count("```example") >= 20


@pytest.mark.parametrize("example", EXAMPLES, ids=_IDS)
def test_an_example_is_a_vector(example: Example) -> None:
    case = _case(example)
    fields = (
        [example.field] if example.field else ["frame", "entry", "packet", "encoded", "bytes_hex"]
    )
    if example.form == "example-text":
        assert _shown_text(example) == case[example.field or "text"]
    else:
        (expected,) = (case[field] for field in fields if field in case)
        assert _shown_bytes(example).hex() == expected


@pytest.mark.parametrize("example", EXAMPLES, ids=_IDS)
def test_an_example_is_read_and_written_by_bkbox(example: Example) -> None:
    named = check.load(json.dumps(VECTORS[example.file])).cases
    (case,) = (each for each in named if each.case == _case(example))
    assert check.problems(case) == []


_NOTES = re.compile(r'"([^"]*)"')


@pytest.mark.parametrize(
    "example", [example for example in EXAMPLES if example.form == "example"], ids=str
)
def test_quoted_notes_are_what_the_bytes_say(example: Example) -> None:
    """Text in quotes behind some bytes is in those bytes, unless it is the password of a key."""
    for line in example.lines:
        shown, _, note = line.strip().partition("  ")
        for quoted in _NOTES.findall(note):
            if "password" not in note or shown.startswith("42"):
                assert quoted.encode() in bytes.fromhex(shown), line


# ---- tables -------------------------------------------------------------------------------------


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|\- ]+", line):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def _section(heading: str) -> str:
    """From a heading up to the next one."""
    match = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
    assert match is not None, heading
    return match[1]


def _messages(*roots: Message) -> dict[str, Message]:
    found: dict[str, Message] = {}
    for root in roots:
        found[root.name] = root
        found |= _messages(*(field.message for field in root.fields if field.message is not None))
    return found


MESSAGES = _messages(
    v3_format.REQUEST,
    v3_format.RESPONSE,
    auth.FORMAT,
    ledger_metadata._FORMAT,
    cookie._FORMAT,
    service_info._FORMAT,
    underreplication._LEDGER,
)


def _type(field: Field) -> str:
    if field.message is not None:
        return field.message.name
    if field.enum is not None:
        return f"enum {field.enum.__name__}"
    return "bytes" if field.kind is Kind.VIEW else field.kind.value


_MARKS = {Label.REQUIRED: "", Label.OPTIONAL: "?", Label.REPEATED: "*"}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=lambda message: message.name)
def test_every_message_has_its_row(message: Message) -> None:
    fields = [
        f"{field.number} {field.name} {_type(field)}{_MARKS[field.label]}"
        for field in message.fields
    ]
    shown = [row[1] for row in _rows(PAGE) if row[0] == message.name and len(row) == 2]
    assert shown == [", ".join(fields) or "\N{EN DASH}"]


def test_no_row_of_a_message_that_is_not_there() -> None:
    tables = re.findall(
        r"^\| message \| fields \|\n\|---\|---\|\n((?:\|.*\n)*)", PAGE, re.MULTILINE
    )
    shown = [row[0] for table in tables for row in _rows(table)]
    assert sorted(shown) == sorted(MESSAGES)


@pytest.mark.parametrize(
    "enum",
    [v3_format.ProtocolVersion, v3_format.Operation, v3_format.ReadFlag, v3_format.AddFlag],
    ids=lambda enum: enum.__name__,
)
def test_enums_of_version_3(enum: type[IntEnum]) -> None:
    listed = ", ".join(f"{member.name} {member.value}" for member in enum)
    assert [enum.__name__, listed] in list(_rows(_section("3.2 Messages")))


def test_states_of_a_ledger() -> None:
    listed = ", ".join(f"{state.name} {state.value}" for state in LedgerState)
    assert f"LedgerState: {listed}." in " ".join(PAGE.split())


def test_codes_and_evidence() -> None:
    rows = list(_rows(_section("7. Codes and what they prove")))[1:]
    assert rows == [[code.name, str(code.v2), str(code.v3), code.evidence.value] for code in Code]


def test_opcodes_and_flags_of_version_2() -> None:
    rows = list(_rows(_section("2.1 Header")))
    opcodes = {
        "ADD": v2.OP_ADD,
        "READ": v2.OP_READ,
        "AUTH": v2.OP_AUTH,
        "BATCH_READ": v2.OP_BATCH_READ,
    }
    listed = ", ".join(f"{opcode} {name}" for name, opcode in opcodes.items())
    assert f"Opcodes: {listed} (since 4.17)." in " ".join(PAGE.split())
    flags = {"DO_FENCING": v2.FLAG_DO_FENCING, "RECOVERY_ADD": v2.FLAG_RECOVERY_ADD}
    for name, flag in (flags | {"HIGH_PRIORITY": v2.FLAG_HIGH_PRIORITY}).items():
        assert [f"{flag:#06x}", name] in [row[:2] for row in rows]


def test_digest_types() -> None:
    rows = list(_rows(_section("4.2 Digest")))[1:]
    sizes = {kind: DigestManager(1, kind, b"").digest_size for kind in DigestType}
    assert [row[:3] for row in rows] == [
        [kind.name, str(kind.value), str(sizes[kind])] for kind in DigestType
    ]


def test_check_values() -> None:
    assert f"cbf43926 by CRC-32, {crc32c.crc32c(b'123456789'):08x} by CRC-32C" in PAGE
    assert zlib.crc32(b"123456789") == 0xCBF43926


def test_keys() -> None:
    rows = list(_rows(_section("4.3 Keys")))[1:]
    passwords = {"testPasswd": b"testPasswd", "(empty)": b""}
    assert [row[0] for row in rows] == list(passwords)
    for name, master, hmac in rows:
        assert master_key(passwords[name]).hex() == master
        assert hmac_key(passwords[name]).hex() == hmac


def test_layouts_and_paths() -> None:
    layouts = {row[0]: row[1].strip("`") for row in _rows(_section("12.1 LAYOUT"))}
    del layouts["name in URIs"]
    assert layouts == {layout.value: layout.factory_class for layout in PathLayout}
    paths = [row for row in _rows(_section("12.2 Paths of ledgers")) if len(row) == 3][1:]
    for layout, ledger, path in paths:
        assert f"`{ledger_path('/ledgers', PathLayout(layout), int(ledger))}`" == path


def test_bounds() -> None:
    text = " ".join(PAGE.split())
    assert f"by default {FRAME_BYTES_MAX:,} on both sides" in text
    assert f"a body of {FRAME_BYTES_MAX - 4:,} bytes is the largest" in text
    assert f"{FRAME_BYTES_MAX - 60:,} bytes less the size of the digest" in text
    assert f"{LONG_POLL_MS_MAX // 1000} s, and {LONG_POLLS_MAX:,} polls per disk" in text


def test_every_file_of_vectors_is_named() -> None:
    named = re.findall(r"^\| `([a-z0-9-]+)\.json` \|", PAGE, re.MULTILINE)
    assert sorted(named) == list(VECTORS)
