"""Checks of vectors about what lies in a metadata store, and about the paths there.

Where a case says ``differs_in_4_18_0``, the readers of 4.17 and 4.18 disagree: either reading is
taken as right, and bytes that either writes have to be readable; written is what 4.17 writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from bkbox.base.ids import BookieId, EntryId, LedgerId, bookie_id
from bkbox.errors import CookieMismatchError, EncodingError, InvalidIdError
from bkbox.wire.digest import master_key
from bkbox.wire.metadata import (
    cookie,
    layout,
    ledger_metadata,
    local_ledger,
    service_info,
    underreplication,
)
from bkbox.wire.metadata.cookie import Cookie
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from bkbox.wire.write_set import expected_entries, in_write_set, last_final_entry, write_set
from tests.vectors.common import Case, Check, differ, differ_fields, digest_type, must_fail
from tests.vectors.paths import check_tree

_SOME_LEDGER = LedgerId(7)


def _data(case: Case) -> bytes:
    """The payload of a case; its text, where there is one, has to agree."""
    if "bytes_hex" not in case:
        return str(case["text"]).encode()
    return bytes.fromhex(case["bytes_hex"])


def _check_text(case: Case) -> Iterator[str]:
    for form in (case, case.get("differs_in_4_18_0", {})):
        if "text" in form and "bytes_hex" in form:
            yield from differ("text", form["text"].encode(), _data(form))


def _check_parsed(case: Case, decode: Callable[[bytes], dict[str, Any]]) -> Iterator[str]:
    """The payload decodes to ``parsed`` of 4.17, or to that of 4.18 where 4.17 refuses it."""
    other = case.get("differs_in_4_18_0", {})
    readings = [case["parsed"], other.get("parsed", case["parsed"])]
    if not all(reading == "error" or isinstance(reading, dict) for reading in readings):
        yield f"parsed is neither an object nor 'error': {readings}"
    expected = readings[1] if readings[0] == "error" else readings[0]
    for payload in [_data(case)] + ([_data(other)] if {"bytes_hex", "text"} & {*other} else []):
        try:
            found = decode(payload)
        except EncodingError as error:
            if expected != "error":
                yield f"refused: {error}"
            continue
        if expected == "error":
            yield f"expected to be refused, found {found}"
        else:
            yield from differ_fields(expected, found)


# ---- ledger metadata --------------------------------------------------------------------------


def _check_ledger_metadata(case: Case) -> Iterator[str]:
    yield from _check_text(case)
    yield from differ("encoded", _data(case), ledger_metadata.encode(_ledger_of(case["input"])))
    yield from _check_ledger_metadata_parse(case)
    found = ledger_metadata.decode(_SOME_LEDGER, _data(case), _znode_ctime(case))
    for name, written in (
        ("rewritten_unchanged_hex", found),
        ("after_next_update_hex", replace(found, creator_token=0)),
    ):
        if name in case:
            yield from differ(name, case[name], ledger_metadata.encode(written).hex())


def _check_ledger_metadata_parse(case: Case) -> Iterator[str]:
    yield from _check_text(case)
    ctime = _znode_ctime(case)
    yield from _check_parsed(
        case, lambda data: _ledger_fields(ledger_metadata.decode(_SOME_LEDGER, data, ctime))
    )


def _znode_ctime(case: Case) -> int:
    ctime = case["znode_ctime_given_to_parser"]
    return -1 if ctime is None else int(ctime)


def _ledger_of(fields: Case) -> LedgerMetadata:
    closed = fields["state"] == "CLOSED"
    password = fields["password_hex"]
    return LedgerMetadata(
        ledger_id=LedgerId(fields["ledger_id"]),
        ensemble_size=fields["ensemble_size"],
        write_quorum=fields["write_quorum"],
        ack_quorum=fields["ack_quorum"],
        state=LedgerState[fields["state"]],
        fragments=tuple(
            Fragment(EntryId(first), tuple(map(bookie_id, ensemble)))
            for first, ensemble in fields["ensembles"]
        ),
        last_entry=EntryId(fields["last_entry_id"] if closed else -1),
        length=fields["length"] if closed else 0,
        digest_type=None if fields["digest_type"] is None else digest_type(fields["digest_type"]),
        password=None if password is None else bytes.fromhex(password),
        custom=tuple((key, bytes.fromhex(value)) for key, value in fields["custom_metadata"] or ()),
        ctime_ms=-1 if fields["ctime"] is None else fields["ctime"],
        store_ctime=bool(fields["store_ctime"]),
        format_version=fields["format_version"],
        creator_token=fields["c_token"] or 0,
    )


def _ledger_fields(metadata: LedgerMetadata) -> dict[str, Any]:
    digest = metadata.digest_type
    return {
        "format_version": metadata.format_version,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "state": metadata.state.name,
        "last_entry_id": metadata.last_entry,
        "length": metadata.length,
        "ensembles": [[f.first_entry, list(f.ensemble)] for f in metadata.fragments],
        "has_password": metadata.password is not None,
        "password_hex": None if metadata.password is None else metadata.password.hex(),
        "digest_type": None if digest is None else {"HMAC": "MAC"}.get(digest.name, digest.name),
        "ctime": metadata.ctime_ms,
        "store_ctime": metadata.store_ctime,
        "custom_metadata_sorted": [[key, value.hex()] for key, value in sorted(metadata.custom)],
        "c_token": metadata.creator_token,
    }


def _check_master_key(case: Case) -> Iterator[str]:
    key = master_key(bytes.fromhex(case["password_hex"]))
    yield from differ("master_key_hex", case["master_key_hex"], key.hex())


def _check_write_set(case: Case) -> Iterator[str]:
    sizes = (case["ensemble_size"], case["write_quorum"])
    for entry, expected in case["entries"]:
        yield from differ(f"write set of {entry}", expected, sorted(write_set(entry, *sizes)))
        found = [position for position in range(sizes[0]) if in_write_set(entry, position, *sizes)]
        yield from differ(f"holders of {entry}", expected, found)


def _check_expected_entries(case: Case) -> Iterator[str]:
    metadata = _ledger_of(case["metadata"])
    found = list(expected_entries(metadata, BookieId(case["bookie"])))
    yield from differ("entries", case["entries_this_bookie_must_hold"], found)
    yield from differ("checked up to", case["checked_up_to_entry"], last_final_entry(metadata))


# ---- cookies ----------------------------------------------------------------------------------


def _check_cookie(case: Case) -> Iterator[str]:
    yield from _check_text(case)
    made = _cookie_of(case["input"])
    if case["parsed"] == "error":
        # Java's writer puts plain lines below a 5 if the layout is old, which nobody can read.
        lines = (str(cookie.CURRENT_LAYOUT), made.bookie_host, made.journal_dir, made.ledger_dirs)
        yield from differ("text", _data(case), "".join(f"{line}\n" for line in lines).encode())
        yield from must_fail("input", EncodingError, lambda: cookie.encode(made))
    else:
        yield from differ("encoded", _data(case), cookie.encode(made))
    yield from _check_cookie_parse(case)


def _check_cookie_parse(case: Case) -> Iterator[str]:
    yield from _check_text(case)
    yield from _check_parsed(case, lambda data: _cookie_fields(cookie.decode(data)))


def _check_cookie_verify(case: Case) -> Iterator[str]:
    config, stored = _cookie_of(case["from_config"]), _cookie_of(case["stored"])
    yield from differ("verify", case["verify"], _verdict(cookie.verify, config, stored))
    yield from differ(
        "verify_is_superset",
        case["verify_is_superset"],
        _verdict(cookie.verify_superset, config, stored),
    )
    yield from differ("equals", case["equals"], config == stored)


def _verdict(verify: Callable[[Cookie, Cookie], None], config: Cookie, stored: Cookie) -> str:
    try:
        verify(config, stored)
    except CookieMismatchError:
        return "reject"
    return "accept"


def _cookie_of(fields: Case) -> Cookie:
    made = cookie.cookie_of(
        fields["bookie_id"],
        fields["journal_dirs"],
        fields["ledger_dirs"],
        fields["index_dirs"],
        fields["instance_id"],
    )
    return replace(made, layout_version=fields.get("layout_version", cookie.CURRENT_LAYOUT))


def _cookie_fields(found: Cookie) -> dict[str, Any]:
    return {
        "layout_version": found.layout_version,
        "bookie_id": found.bookie_host,
        "journal_dirs_raw": found.journal_dir,
        "ledger_dirs_raw": found.ledger_dirs,
        "index_dirs_raw": found.index_dirs,
        "instance_id": found.instance_id,
    }


# ---- bookies ----------------------------------------------------------------------------------


def _check_service_info(case: Case) -> Iterator[str]:
    endpoints = [
        service_info.Endpoint(
            **{**endpoint, "auth": (*endpoint["auth"],), "extensions": (*endpoint["extensions"],)}
        )
        for endpoint in case["input"]["endpoints"]
    ]
    properties = ((key, value) for key, value in case["input"]["properties"])
    made = service_info.ServiceInfo(tuple(endpoints), tuple(properties))
    yield from differ("encoded", _data(case), service_info.encode(made))
    if _data(case):
        yield from differ("decoded", made, service_info.decode(BookieId("a:1"), _data(case)))


def _check_service_info_parse(case: Case) -> Iterator[str]:
    def fields(data: bytes) -> dict[str, Any]:
        info = service_info.decode(BookieId(case["bookie_id"]), data)
        endpoints = [
            {
                "id": endpoint.id,
                "port": endpoint.port,
                "host": endpoint.host,
                "protocol": endpoint.protocol,
                "auth": list(endpoint.auth),
                "extensions": list(endpoint.extensions),
            }
            for endpoint in info.endpoints
        ]
        return {"endpoints": endpoints, "properties": dict(info.properties)}

    yield from _check_parsed(case, fields)


def _check_bookie_id(case: Case) -> Iterator[str]:
    address = None
    verdict = "accept"
    try:
        address = service_info.split_bookie_id(bookie_id(case["value"]))
    except InvalidIdError:
        verdict = "reject"
    yield from differ("bookie_id", case["bookie_id"], verdict)
    found = None if address is None else f"{address.host}|{address.port}"
    yield from differ("legacy_host_port", case["legacy_host_port"], found)


def _check_local_ledger(case: Case) -> Iterator[str]:
    lac = case["explicit_lac_hex"]
    made = local_ledger.LocalLedger(
        case["exists"],
        case["fenced"],
        bytes.fromhex(case["master_key_hex"]),
        None if lac is None else bytes.fromhex(lac),
        case["limbo"],
    )
    yield from differ("encoded", _data(case), local_ledger.encode(made))
    yield from differ("decoded", made, local_ledger.decode(_data(case)))


# ---- small nodes ------------------------------------------------------------------------------


def _check_layout(case: Case) -> Iterator[str]:
    yield from _check_text(case)
    fields = case["input"]
    made = layout.LedgerLayout(fields["factory_class"], fields["manager_version"])
    yield from differ("encoded", _data(case), layout.encode(made))
    yield from differ("decoded", made, layout.decode(_data(case)))


def _check_layout_parse(case: Case) -> Iterator[str]:
    def fields(data: bytes) -> dict[str, Any]:
        found = layout.decode(data)
        return {
            "layout_format_version": found.format_version,
            "factory_class": found.factory_class,
            "manager_version": found.manager_version,
        }

    yield from _check_parsed(case, fields)


def _check_underreplicated(case: Case) -> Iterator[str]:
    yield from _check_text(case)
    fields = case["input"]
    made = underreplication.UnderreplicatedLedger(tuple(fields["replicas"]), fields["ctime"])
    yield from differ("encoded", _data(case), underreplication.encode_ledger(made))
    yield from differ("decoded", made, underreplication.decode_ledger(_data(case)))


def _check_underreplicated_parse(case: Case) -> Iterator[str]:
    def fields(data: bytes) -> dict[str, Any]:
        found = underreplication.decode_ledger(data)
        ctime = -1 if found.ctime_ms is None else found.ctime_ms
        return {"replicas": list(found.replicas), "ctime": ctime}

    yield from _check_parsed(case, fields)


def _encode_rereplication(value: str) -> bytes:
    name, version = value.split(":")
    return underreplication.encode_layout(underreplication.RereplicationLayout(name, int(version)))


def _decode_rereplication(data: bytes) -> str:
    found = underreplication.decode_layout(data)
    return f"{found.type}:{found.version}"


_HOLDER = (underreplication.encode_holder, underreplication.decode_holder)
_CHECK_TIME = (underreplication.encode_check_time, underreplication.decode_check_time)
_NODES: dict[str, tuple[Callable[[Any], bytes], Callable[[bytes], object]]] = {
    "ur_layout": (_encode_rereplication, _decode_rereplication),
    "lock": _HOLDER,
    "vote": _HOLDER,
    "checkallledgersctime": _CHECK_TIME,
    "placementpolicycheckctime": _CHECK_TIME,
    "replicascheckctime": _CHECK_TIME,
    "lostbookierecoverydelay": (
        underreplication.encode_recovery_delay,
        underreplication.decode_recovery_delay,
    ),
}


def _check_small_node(case: Case) -> Iterator[str]:
    yield from _check_text(case)
    encode, decode = _NODES[case["kind"]]
    yield from differ("encoded", _data(case), encode(case["value"]))
    yield from differ("decoded", case["value"], decode(_data(case)))


METADATA_CHECKS: dict[str, Check] = {
    "ledger_metadata": _check_ledger_metadata,
    "ledger_metadata_parse": _check_ledger_metadata_parse,
    "cookies": _check_cookie,
    "cookie_parse": _check_cookie_parse,
    "cookie_verify": _check_cookie_verify,
    "bookie_service_info": _check_service_info,
    "bookie_service_info_parse": _check_service_info_parse,
    "layouts": _check_layout,
    "layout_parse": _check_layout_parse,
    "underreplicated_ledger": _check_underreplicated,
    "underreplicated_ledger_parse": _check_underreplicated_parse,
    "small_znodes": _check_small_node,
    "bookie_local_ledger_data": _check_local_ledger,
    "bookie_ids": _check_bookie_id,
    "ledger_master_key": _check_master_key,
    "write_sets": _check_write_set,
    "expected_entries": _check_expected_entries,
    "znode_trees": check_tree,
}
