"""What must not be seen is taken out, whatever it is wrapped in; and the rest stays readable."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.redaction import REMOVED, Secrets, known_secrets

SECRET = "Tr0ub4dor&3/x y"


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"before {SECRET} after",
        json.dumps({"a": SECRET}),
        "zk://user:Tr0ub4dor%263%2Fx%20y@host/ledgers",
        base64.b64encode(SECRET.encode()).decode(),
        SECRET.encode().hex(),
    ],
)
def test_a_known_secret_is_removed_in_every_form(text: str) -> None:
    found = Secrets([SECRET]).removed_from(text)
    assert REMOVED in found
    for part in (
        "Tr0ub4dor",
        base64.b64encode(SECRET.encode()).decode()[:12],
        SECRET.encode().hex(),
    ):
        assert part not in found


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter22x",
        "password = 'hunter22x'",
        '"ledger_password": "hunter22x"',
        "--admin-token hunter22x --other",
        "Authorization: Bearer hunter22x",
        "authorization: Basic aHVudGVyMjJ4aHVudGVyMjJ4 hunter22x"[:53],
        "zk+hierarchical://me:hunter22x@zk1:2181/ledgers",
        "api_key=hunter22x;",
        "BKBOX_LEDGER_PASSWORD=hunter22x",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter22x\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nhunter22x\nand the rest was cut",
    ],
)
def test_what_stands_in_the_place_of_a_secret_is_removed(text: str) -> None:
    assert "hunter22x" not in Secrets().removed_from(text)


@pytest.mark.parametrize(
    "text",
    [
        "ledger 7 entry 12: fenced by 10.0.0.5:51234",
        "metadata zk+hierarchical://zk1:2181;zk2:2181/ledgers",
        "2026-01-02T03:04:05 host bkbox[7]: disk /data/a is out of service",
        "tokenizer of 4 keys took 3 ms",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Secrets().removed_from(text) == text


def test_values_under_names_of_secrets_go_whole_and_paths_stay() -> None:
    document = {"admin_token": "abc", "admin_token_file": "/etc/x", "n": [{"passwd": "a b, c"}]}
    assert Secrets().removed_from_value(document) == {
        "admin_token": REMOVED,
        "admin_token_file": "/etc/x",
        "n": [{"passwd": REMOVED}],
    }


def test_secrets_are_read_where_a_configuration_leads(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret-token\n")
    values = {"admin_token_file": str(tmp_path / "token"), "listen": "a:1", "some_password": "pw-x"}
    found = known_secrets(values, {"BKBOX_LEDGER_PASSWORD": "env-secret", "HOME": "/root"})
    text = Secrets(found).removed_from("s3cret-token env-secret pw-x /root a:1")
    assert text == f"{REMOVED} {REMOVED} {REMOVED} /root a:1"


@given(st.text(min_size=4), st.text(), st.text())
def test_a_known_secret_is_never_left(secret: str, before: str, after: str) -> None:
    if len(secret.strip()) < 4:
        return
    found = Secrets([secret]).removed_from(before + secret + after)
    if secret.strip() not in REMOVED + "@" and secret.strip() not in before + after:
        assert secret.strip() not in found.replace(REMOVED, "\0")


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    Secrets(["secret-value"]).removed_from(text)
