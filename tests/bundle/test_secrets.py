"""What must not be seen is taken out, whatever it is wrapped in; and the rest stays readable."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.base.redaction import REMOVED, Secrets, known_secrets

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


def test_every_file_with_secrets_that_a_configuration_leads_to_is_read(tmp_path: Path) -> None:
    def file(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    values: dict[str, object] = {
        "auth_users_file": file("users", "# who\nbroker:first-s3cret\nreader: with:colon \n"),
        "peers_secret_file": file("peer", "peer-s3cret\n"),
        "tls_key_file": file("key", "-----BEGIN PRIVATE KEY-----\nMIIEkeykey\n"),
        "tls_certificate_file": file("certificate", "MIICpublic\n"),
        "tls_ca_file": file("ca", "MIICauthority\n"),
        "metadata": f"zk://zk1:2281/ledgers?secret_file={file('zk', 'me:zk-s3cret')}"
        f"&tls_ca_file={tmp_path}/ca&tls_key_file={file('zkkey', 'MIIEzkkey')}",
        "disks": ["/data/a"],
        "advertised_port": 3181,
    }
    client_file = file(
        "client.toml",
        f'auth_user = "me"\nauth_secret_file = "client"\ntls_key_file = "{tmp_path}/client.key"\n',
    )
    file("client", "client-s3cret\n")
    file("client.key", "MIIEclientkey\n")
    environ = {"BKBOX_CLIENT_FILE": client_file, "BKBOX_TOKEN_FILE": file("token", "t0ken-s3cret")}
    secret = (
        "first-s3cret",
        "with:colon",
        "peer-s3cret",
        "MIIEkeykey",
        "zk-s3cret",
        "MIIEzkkey",
        "client-s3cret",
        "MIIEclientkey",
        "t0ken-s3cret",
    )
    public = ("broker", "MIICpublic", "MIICauthority", "/data/a", str(tmp_path / "users"))
    text = Secrets(known_secrets(values, environ)).removed_from("\n".join((*secret, *public)))
    assert [word for word in secret if word in text] == []
    assert [word for word in public if word not in text] == []


def test_files_that_are_not_there_or_no_toml_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("= 1")
    for name in ("broken", "none"):
        environ = {"BKBOX_CLIENT_FILE": str(tmp_path / name)}
        assert known_secrets({"auth_users_file": str(tmp_path / "none")}, environ) == []
