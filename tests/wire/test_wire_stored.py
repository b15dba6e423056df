"""Stored forms beyond the golden vectors: ledger metadata, cookies, text format, service info."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.errors import CookieMismatchError, EncodingError
from bkbox.protocol.adds import fragments_from
from bkbox.wire import protobuf
from bkbox.wire.metadata import cookie, ledger_metadata, service_info, text_format, underreplication
from bkbox.wire.metadata.cookie import Difference
from bkbox.wire.metadata.ledger import DigestType, Fragment, LedgerMetadata, LedgerState
from bkbox.wire.protobuf import Field, Kind, Label, Message

LEDGER = LedgerMetadata(
    ledger_id=LedgerId(7),
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=1,
    state=LedgerState.OPEN,
    fragments=(
        Fragment(EntryId(0), (BookieId("a:1"), BookieId("b:2"))),
        Fragment(EntryId(9), (BookieId("a:1"), BookieId("c"))),
    ),
    password=b"\x00\xff",
    custom=(("k", b"\x80"),),
    ctime_ms=5,
    store_ctime=True,
    creator_token=11,
)
COOKIE = cookie.cookie_of("h:1", ["/j"], ["/a", "/b"], None, "id")


@pytest.mark.parametrize("version", [2, 3])
def test_ledger_metadata_returns(version: int) -> None:
    ledger = replace(LEDGER, format_version=version, creator_token=11 if version == 3 else 0)
    assert ledger_metadata.decode(LedgerId(7), ledger_metadata.encode(ledger)) == ledger


def test_what_cannot_be_written() -> None:
    for wrong in (
        replace(LEDGER, password=None),
        replace(LEDGER, digest_type=None),
        replace(LEDGER, format_version=4),
    ):
        with pytest.raises(EncodingError):
            ledger_metadata.encode(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(LEDGER, fragments=()),
        replace(LEDGER, fragments=LEDGER.fragments[::-1]),
        replace(LEDGER, fragments=LEDGER.fragments[:1] * 2),
        replace(LEDGER, ensemble_size=3),
        replace(LEDGER, write_quorum=3),
        replace(LEDGER, ack_quorum=3),
        replace(LEDGER, ack_quorum=0),
        replace(LEDGER, fragments=(Fragment(EntryId(0), (BookieId("a b"), BookieId("c"))),)),
    ],
)
@pytest.mark.parametrize("version", [2, 3])
def test_metadata_that_no_ledger_has(wrong: LedgerMetadata, version: int) -> None:
    data = ledger_metadata.encode(replace(wrong, format_version=version))
    with pytest.raises(EncodingError):
        ledger_metadata.decode(LedgerId(7), data)


def test_every_truncation_of_version_3_is_noticed() -> None:
    data = ledger_metadata.encode(LEDGER)
    for size in range(len(data)):
        with pytest.raises(EncodingError):
            ledger_metadata.decode(LedgerId(7), data[:size])


# ---- metadata of a newer version ----------------------------------------------------------------


def _field(number: int, data: bytes) -> bytes:
    return protobuf.encode_varint(number << 3 | 2) + protobuf.encode_varint(len(data)) + data


NEW_NUMBER = protobuf.encode_varint(13 << 3) + b"\x07"
NEW_TEXT = _field(99, b"new")
NEW_FIXED = (
    protobuf.encode_varint(14 << 3 | 1) + bytes(8) + protobuf.encode_varint(15 << 3 | 5) + bytes(4)
)


def _newer(ledger: LedgerMetadata) -> bytes:
    """The ledger in version 3 as a newer writer has it: by hand, from the parts that are known."""
    segments = b"".join(
        _field(
            6,
            b"".join(_field(1, b.encode()) for b in f.ensemble)
            + b"\x10"
            + bytes((f.first_entry,))
            + NEW_TEXT,
        )
        for f in ledger.fragments
    )
    state = bytes((0x28, ledger.state))
    end = (
        b"\x18"
        + protobuf.encode_varint(ledger.length)
        + b"\x20"
        + protobuf.encode_varint(ledger.last_entry)
    )
    message = (
        b"\x08\x02\x10\x02"
        + end
        + state
        + segments
        + b"\x38\x03"
        + _field(8, b"\x00\xff")
        + b"\x48\x01\x50\x05"
        + _field(11, _field(1, b"k") + _field(2, b"\x80") + NEW_NUMBER)
        + b"\x60"
        + protobuf.encode_varint(ledger.creator_token)
        + NEW_NUMBER
        + NEW_FIXED
        + NEW_TEXT
    )
    return b"BookieMetadataFormatVersion\t3\n" + protobuf.encode_varint(len(message)) + message


def test_unknown_fields_survive_every_change() -> None:
    found = ledger_metadata.decode(LedgerId(7), _newer(LEDGER))
    assert found.unknown == NEW_NUMBER + NEW_FIXED + NEW_TEXT
    assert [fragment.unknown for fragment in found.fragments] == [NEW_TEXT] * 2
    assert found.custom_unknown == (("k", NEW_NUMBER),)
    assert ledger_metadata.encode(found) == _newer(LEDGER)

    ensemble = (BookieId("a:1"), BookieId("x:9"))
    replaced = fragments_from(found.fragments, EntryId(9), ensemble)
    assert replaced == (found.fragments[0], Fragment(EntryId(9), ensemble, NEW_TEXT))
    appended = fragments_from(replaced, EntryId(12), ensemble)
    assert appended == (*replaced, Fragment(EntryId(12), ensemble))

    closed = replace(
        found.with_state(LedgerState.CLOSED), fragments=replaced, last_entry=EntryId(20), length=33
    )
    plain = replace(
        LEDGER.with_state(LedgerState.CLOSED),
        fragments=tuple(replace(fragment, unknown=b"") for fragment in replaced),
        last_entry=EntryId(20),
        length=33,
    )
    assert ledger_metadata.encode(closed) == _newer(plain)
    assert found != replace(found, unknown=b"")
    assert hash(found) != hash(replace(found, unknown=b""))


def test_known_fields_out_of_order_and_unknown_ones_between() -> None:
    message = ledger_metadata.encode(LEDGER).split(b"\n", 1)[1][1:]
    mixed = NEW_TEXT + message[4:] + NEW_NUMBER + message[:4]
    data = b"BookieMetadataFormatVersion\t3\n" + protobuf.encode_varint(len(mixed)) + mixed
    found = ledger_metadata.decode(LedgerId(7), data)
    assert found == replace(LEDGER, unknown=NEW_TEXT + NEW_NUMBER)


def test_a_known_field_of_another_type_is_kept_as_unknown() -> None:
    odd = _field(10, b"five")
    ledger = replace(LEDGER, store_ctime=False, ctime_ms=-1, unknown=odd)
    assert ledger_metadata.decode(LedgerId(7), ledger_metadata.encode(ledger)) == ledger


def test_unknown_fields_of_version_2_survive() -> None:
    known = ledger_metadata.encode(replace(LEDGER, format_version=2)).decode()
    newer = known.replace(
        "  firstEntryId: 9\n", "  firstEntryId: 9\n  zone {\n    a: 'é'\n  }\n  n: -1\n"
    )
    newer = newer.replace('  value: "\\200"\n', '  value: "\\200"\n  sealed: true\n')
    newer += 'tier: COLD\nlist: [1, 2]\nnested <\n  deep { x: "a" "b" }\n>\n'
    found = ledger_metadata.decode(LedgerId(7), newer.encode())
    assert found.fragments[0].unknown == b""
    assert found.fragments[1].unknown == "  zone {\n    a: 'é'\n  }\n  n: -1\n".encode()
    assert found.custom_unknown == (("k", b"  sealed: true\n"),)
    assert ledger_metadata.encode(found) == newer.encode()
    closed = ledger_metadata.encode(found.with_state(LedgerState.CLOSED))
    assert closed == newer.replace("state: OPEN", "state: CLOSED").encode()
    one_line = ledger_metadata.decode(LedgerId(7), newer.replace("\n}", " }").encode())
    assert ledger_metadata.decode(LedgerId(7), ledger_metadata.encode(one_line)) == one_line


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (b"\x28\x04", "state has the unknown value 4"),
        (b"\x38\x09", "digestType has the unknown value 9"),
    ],
)
def test_a_state_or_digest_type_of_the_future_is_an_error(field: bytes, reason: str) -> None:
    message = ledger_metadata.encode(LEDGER).split(b"\n", 1)[1][1:] + field
    data = b"BookieMetadataFormatVersion\t3\n" + protobuf.encode_varint(len(message)) + message
    with pytest.raises(EncodingError, match=reason):
        ledger_metadata.decode(LedgerId(7), data)


@pytest.mark.parametrize("version", [0, 4, 17])
def test_an_unknown_version_says_what_to_do(version: int) -> None:
    data = b"BookieMetadataFormatVersion\t%d\nwhatever" % version
    with pytest.raises(EncodingError) as caught:
        ledger_metadata.decode(LedgerId(7), data)
    text = str(caught.value)
    assert text.startswith(
        f"ledger 7: its metadata has format version {version}, and versions 1, 2"
    )
    assert "upgrade" in text


def test_a_mark_keeps_what_is_not_known() -> None:
    mark = underreplication.decode_ledger(b'replica: "a:1"\nctime: 5\nurgent: true\n')
    again = mark.marked_again(["b:1", "a:1", "b:1"], 9)
    assert underreplication.encode_ledger(again) == (
        b'replica: "a:1"\nreplica: "b:1"\nctime: 9\nurgent: true\n'
    )
    assert again.marked_again(["a:1"], 11) is again


def test_a_cookie_with_unknown_fields_is_the_same_cookie() -> None:
    assert cookie.decode(cookie.encode(COOKIE) + b'sealedBy: "x" more { a: 1 }\n') == COOKIE


# ---- cookies ----------------------------------------------------------------------------------


def test_differences_name_the_fields() -> None:
    config = cookie.cookie_of("h:2", ["/k"], ["/a"], ["/i"], None)
    assert cookie.differences(config, COOKIE) == [
        Difference("bookieHost", "h:2", "h:1"),
        Difference("journalDir", "/k", "/j"),
        Difference("ledgerDirs", "1 /a", "2 /a /b"),
        Difference("indexDirs", "1 /i", "2 /a /b"),
        Difference("instanceId", "(none)", "id"),
    ]
    with pytest.raises(CookieMismatchError, match="bookieHost: configured h:2, stored h:1"):
        cookie.verify(config, COOKIE)


def test_storage_may_grow_where_that_is_asked_for() -> None:
    grown = cookie.cookie_of("h:1", ["/j"], ["/b", "/c", "/a"], None, "id")
    with pytest.raises(CookieMismatchError):
        cookie.verify(grown, COOKIE)
    cookie.verify_superset(grown, COOKIE)
    with pytest.raises(CookieMismatchError):
        cookie.verify_superset(COOKIE, grown)


def test_directories_of_a_cookie() -> None:
    assert cookie.directories(COOKIE.ledger_dirs) == ("/a", "/b")
    assert cookie.directories(None) == ()
    assert cookie.decode(cookie.encode(COOKIE)) == COOKIE


# ---- text format ------------------------------------------------------------------------------

INNER = Message("Inner", Field(1, "n", Kind.INT32, Label.REQUIRED))
OUTER = Message(
    "Outer",
    Field(1, "s", Kind.STRING),
    Field(2, "b", Kind.BYTES, Label.REPEATED),
    Field(3, "m", Kind.MESSAGE, Label.REPEATED, message=INNER),
    Field(4, "i", Kind.INT64),
    Field(5, "e", Kind.ENUM, enum=DigestType),
)


def test_text_is_written_in_one_way() -> None:
    values = {
        "i": -1,
        "s": "é\"'\\\n",
        "b": [b"\x00\x07\x0b\x7f", b""],
        "m": [{"n": 1}],
        "e": DigestType.HMAC,
    }
    text = text_format.encode(OUTER, values)
    assert text == (
        's: "\\303\\251\\"\\\'\\\\\\n"\nb: "\\000\\a\\v\\177"\nb: ""\n'
        "m {\n  n: 1\n}\ni: -1\ne: HMAC\n"
    )
    assert text_format.decode(OUTER, text) == values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("m: { n: 0x10 }, m < n: 010 >; m { n: 9 }", {"m": [{"n": 16}, {"n": 8}, {"n": 9}]}),
        ("b: ['a', \"b\" 'c'] b: []", {"b": [b"a", b"bc"]}),
        ("e: 4 i: -0x1", {"e": DigestType.DUMMY, "i": -1}),
        ("# only a comment", {}),
        ("s: '\\x41\\u00e9\\U0001F600\\101'", {"s": "Aé😀A"}),
        ("x: 1 y { z: 'a' 'b' w < > } v: [1, a] u: -inf s: 'end'", {"s": "end"}),
        ("s: 'first' s: 'last'", {"s": "last"}),
    ],
)
def test_text_is_read_widely(text: str, expected: dict[str, object]) -> None:
    assert text_format.decode(OUTER, text) == {"b": [], "m": [], **expected}


@pytest.mark.parametrize(
    "text",
    [
        "s", "s 'a'", "s: a", "s: 'a", "s: 'a\n'", "m {", "m { n: 1 >", "m: 1", "m {}", "}", "i: a",
        "i: 9223372036854775808", "i: 1.5", "e: SHA", "e: 9", "s: '\\q'", "s: '\\377'", "é: 1",
        "x", "x: }", "x: [", "b: ['a' 'b'", "b: ['a'; 'b']", "x {" * 1000, "i: " + "9" * 5000,
        "s: '\\ud800'", "s: '\\Uffffffff'",
    ],
)  # fmt: skip
def test_text_that_is_refused(text: str) -> None:
    with pytest.raises(EncodingError):
        text_format.decode(OUTER, text)


# ---- service info -----------------------------------------------------------------------------


def test_where_clients_connect_to() -> None:
    info = service_info.rpc_service_info("host", 3181)
    assert service_info.decode(BookieId("name"), service_info.encode(info)) == info
    assert info.rpc == ("host", 3181)
    assert service_info.ServiceInfo().rpc is None
    http = service_info.ServiceInfo((service_info.Endpoint("h", 80, "x", "http"),))
    assert http.rpc is None


@pytest.mark.parametrize("name", ["host:65536", "host:-1", "host:99999999999", "host"])
def test_names_that_are_no_address(name: str) -> None:
    assert service_info.split_bookie_id(name) is None
