"""Every golden vector holds, and a vector that is wrong is noticed."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkbox.wire.v3_format import REQUEST, RESPONSE
from tests.vectors import check

FOLDER = Path(__file__).parent / "vectors"
FILES = sorted(FOLDER.glob("*.json"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def _cases(path: Path) -> list[check.NamedCase]:
    cases = check.load(path.read_text(encoding="utf-8")).cases
    assert cases
    return cases


PROVEN_FIELDS = {
    "frame", "packet", "master_key", "hmac_key", "digest", "digest_size", "groups", "total",
    "rewritten_unchanged_hex", "after_next_update_hex", "verify", "verify_is_superset", "equals",
    "bookie_id", "legacy_host_port", "master_key_hex", "checked_up_to_entry", "lock_path",
    "id_read_back", "is_ledger_parent", "is_special", "prefix", "created_node",
}  # fmt: skip
"""Fields that are derived from all the others: any change to one of them has to be noticed."""


V3_PARTS = {field.name for table in (REQUEST, RESPONSE) for field in table.fields}


def _changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if not value:
        return "00"
    return value[:-1] + ("1" if value[-1] == "0" else "0")


@each_file
def test_holds(path: Path) -> None:
    assert {case.name: found for case in _cases(path) if (found := check.problems(case))} == {}


@each_file
def test_a_change_is_noticed(path: Path) -> None:
    for case in _cases(path):
        fields = PROVEN_FIELDS & case.case.keys()
        if "bookie_id" in case.case and "value" not in case.case:
            fields -= {"bookie_id"}
        for field in fields:
            wrong = copy.deepcopy(dict(case.case))
            wrong[field] = _changed(wrong[field])
            found = check.problems(check.NamedCase(case.name, wrong, case.check))
            assert found, f"{case.name}: {field}"


@each_file
def test_parsed_is_compared_field_by_field(path: Path) -> None:
    for case in _cases(path):
        parsed = case.case.get("parsed")
        for field in parsed if isinstance(parsed, dict) else ():
            wrong = copy.deepcopy(dict(case.case))
            wrong["parsed"][field] = "wrong"
            found = check.problems(check.NamedCase(case.name, wrong, case.check))
            assert any(field in text for text in found), f"{case.name}: {field}"


def _wrong_messages(message: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The message with each of its fields changed, left out, or joined by another in turn."""
    for name, value in message.items():
        yield name, {key: each for key, each in message.items() if key != name}
        if isinstance(value, dict):
            for path, wrong in _wrong_messages(value):
                yield f"{name}.{path}", {**message, name: wrong}
        elif name in ("version", "operation", "status", "flag"):
            others = {"VERSION_TWO", "START_TLS", "EUA", "FENCE_LEDGER", "ENTRY_PIGGYBACK"}
            for other in others - {value}:
                yield name, {**message, name: other}
        elif isinstance(value, list):
            yield name, {**message, name: value[1:]}
        else:
            yield name, {**message, name: _changed(value)}
    yield "new", {**message, "new": 1}


def test_messages_are_compared_field_by_field() -> None:
    for case in _cases(FOLDER / "wire-v3.json"):
        message = case.case["message"]
        assert not message.keys() - {*V3_PARTS, "header", "status", "requestContext"}, case.name
        for field, wrong in _wrong_messages(message):
            found = check.problems(
                check.NamedCase(case.name, {**case.case, "message": wrong}, case.check)
            )
            assert found, f"{case.name}: {field} of {wrong}"


def test_command_on_good_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([*map(str, FILES)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(FILES)
    assert all(line.endswith(" 0 failing") for line in lines)


def test_command_names_the_failing_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads((FOLDER / "wire-v2.json").read_text(encoding="utf-8"))
    content["cases"][6]["fields"]["entryId"] = 3
    content["cases"][8]["frame"] = content["cases"][8]["frame"][:-2]
    wrong = tmp_path / "renamed.json"
    wrong.write_text(json.dumps(content))
    assert check.main([str(wrong)]) == 1
    first, second, summary = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{wrong}: read_plain: ")
    assert "entryId: expected 3, found 2" in first
    assert second.startswith(f"{wrong}: read_fence_lac: ")
    assert summary == f"{wrong}: wire-v2: 27 cases, 2 failing"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ('{"cases": []}', "unknown kind"),
        ('{"cases": [{"a": 1}]}', "unknown kind"),
        ('{"groups": [1]}', "unknown kind"),
    ],
)
def test_what_cannot_be_checked_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, reason: str
) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    assert check.main([str(FILES[0]), str(path)]) == 2
    assert reason in capsys.readouterr().out


def test_a_missing_file_and_no_file() -> None:
    assert check.main(["/nonexistent/vectors.json"]) == 2
    assert check.main([]) == 2


def test_unknown_groups_and_odd_cases_do_not_pass() -> None:
    text = '{"small_znodes": [{"kind": "new"}, 3, {}], "write_sets": [], "news": [{"a": 1}]}'
    found = [bool(check.problems(case)) for case in check.load(text).cases]
    assert found == [True] * 4


# ---- cases of version 3 that the golden file does not have --------------------------------------

READ = "0a0608031001180{txn}a2060408091005"


def _v3_case(frame: str, message: Any = None, **more: Any) -> dict[str, Any]:
    case = {"direction": "request", "frame": f"{len(frame) // 2:08x}{frame}", **more}
    return case if message is None else {**case, "message": message}


def _found(*cases: dict[str, Any]) -> list[list[str]]:
    loaded = check.load(json.dumps({"cases": cases}))
    assert loaded.kind == "wire-v3"
    return [check.problems(case) for case in loaded.cases]


def _read_message(txn: int, **more: Any) -> dict[str, Any]:
    header = {"version": "VERSION_THREE", "operation": "READ_ENTRY", "txnId": txn}
    return {"header": {**header, **more}, "readRequest": {"ledgerId": 9, "entryId": 5}}


def test_unsigned_numbers_may_be_shown_signed() -> None:
    last = "0a0f0803100118ffffffffffffffffff01a2060408091005"
    priority = "0a0c08031001180720ffffffff0fa2060408091005"
    assert (
        _found(
            _v3_case(last, _read_message(-1)),
            _v3_case(last, _read_message(2**64 - 1)),
            _v3_case(priority, _read_message(7, priority=-1)),
            _v3_case(priority, _read_message(7, priority=2**32 - 1)),
        )
        == [[]] * 4
    )
    assert all(_found(_v3_case(last, _read_message(-2)), _v3_case(last, _read_message(1))))


def test_what_says_no_more_than_its_absence() -> None:
    header = {"version": "VERSION_THREE", "operation": "GET_BOOKIE_INFO", "txnId": 1}
    head = "0a06080310081801"
    assert (
        _found(
            _v3_case("0a08080310011807" + "2000" + "a2060408091005", _read_message(7, priority=0)),
            _v3_case(head, {"header": header}),
            _v3_case(head + "ca0600", {"header": header, "getBookieInfoRequest": {}}),
            _v3_case(
                head + "ca06020800", {"header": header, "getBookieInfoRequest": {"requested": 0}}
            ),
        )
        == [[]] * 4
    )


def test_unknown_fields_are_decoded_over() -> None:
    frame = "fa3e0161" + READ.format(txn=1) + "f83e01" + "fd3e00000000"
    known = _v3_case(frame, _read_message(1), decode_only=True)
    assert _found(known) == [[]]
    del known["decode_only"]
    assert "encoded" in _found(known)[0][0]


def test_frames_that_have_to_be_refused() -> None:
    good = _v3_case(READ.format(txn=1), _read_message(1))
    refused = [
        _v3_case("0a060803100d1801", kind="reject"),
        _v3_case("0a06080310011801", kind="reject"),
        _v3_case("02020000" + "00" * 16, kind="reject"),
        _v3_case("0a06080310011801", kind="reject", direction="response"),
    ]
    accepted = _v3_case(READ.format(txn=1), kind="reject")
    assert [bool(found) for found in _found(*refused, good, accepted)] == [False] * 5 + [True]
    assert [bool(found) for found in _found(*refused[:2], accepted)] == [False, False, True]
    assert check.load(json.dumps({"cases": [refused[2]]})).kind == "wire-v2"


def test_versions_are_not_mixed_in_one_file() -> None:
    good = _v3_case(READ.format(txn=1), _read_message(1))
    other = {"direction": "request", "frame": "00000004", "fields": {}}
    assert [bool(found) for found in _found(good, other)] == [False, True]
