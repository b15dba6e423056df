"""What lies in a metadata store: ledgers, cookies and the rest, and the paths that it lies under."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bkbox.base.ids import BookieId, LedgerId
from bkbox.errors import EncodingError
from bkbox.wire import auth, availability
from bkbox.wire.metadata import (
    cookie,
    layout,
    ledger_metadata,
    local_ledger,
    paths,
    service_info,
    underreplication,
)
from tests.fuzz.target import Target, hex_in, vectors

_LEDGER = LedgerId(7)


@dataclass(frozen=True, slots=True)
class Codec:
    """``encode``: None where there is nothing to write, or a value has several forms."""

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes] | None


CODECS: dict[str, Codec] = {
    "cookie": Codec(cookie.decode, cookie.encode),
    "layout": Codec(layout.decode, layout.encode),
    "availability": Codec(availability.decode, availability.encode),
    "service info": Codec(
        lambda data: service_info.decode(BookieId("b:1"), data), service_info.encode
    ),
    "local ledger": Codec(local_ledger.decode, local_ledger.encode),
    "underreplicated": Codec(underreplication.decode_ledger, underreplication.encode_ledger),
    "rereplication": Codec(underreplication.decode_layout, underreplication.encode_layout),
    "holder": Codec(underreplication.decode_holder, underreplication.encode_holder),
    "check time": Codec(underreplication.decode_check_time, None),
    "delay": Codec(underreplication.decode_recovery_delay, underreplication.encode_recovery_delay),
    "auth": Codec(auth.decode, auth.encode),
}
_NAMES = tuple(CODECS)


def check_ledger(data: bytes) -> object:
    """What is read comes back, in the format version that it was written in."""
    try:
        ledger = ledger_metadata.decode(_LEDGER, data)
    except EncodingError as error:
        return _words(error)
    try:
        written = ledger_metadata.encode(ledger)
    except EncodingError:
        assert ledger.password is None
        return ledger.format_version, "no password"
    assert ledger_metadata.decode(_LEDGER, written) == ledger
    assert ledger_metadata.encode(ledger) == written
    return ledger.format_version, ledger.state, len(ledger.fragments), bool(ledger.unknown)


def check_small(data: bytes) -> object:
    """Everything else, one codec by the first byte."""
    name = _NAMES[data[0] % len(_NAMES)] if data else _NAMES[0]
    codec = CODECS[name]
    try:
        value = codec.decode(data[1:])
    except EncodingError as error:
        return name, _words(error)
    if codec.encode is not None and not isinstance(value, cookie.Cookie):
        written = codec.encode(value)
        if written or name != "service info":  # no bytes are an old form of its own
            assert _plain(codec.decode(written)) == _plain(value), name
    elif isinstance(value, cookie.Cookie) and value.layout_version > 3:
        again = codec.decode(cookie.encode(value))
        assert _without_layout(again) == _without_layout(value)
        assert not cookie.differences(value, again)
    if isinstance(value, availability.Availability):
        _check_availability(value)
    return name, type(value)


def _plain(value: Any) -> Any:
    return value.groups if isinstance(value, availability.Availability) else value


def _without_layout(value: cookie.Cookie) -> tuple[object, ...]:
    return (
        value.bookie_host,
        value.journal_dir,
        value.ledger_dirs,
        value.instance_id,
        value.index_dirs,
    )


def _check_availability(value: availability.Availability) -> None:
    for group in value.groups[:20]:
        assert group.first_start in value
        assert group.end - 1 in value
        assert group.runs * group.size <= value.total


def check_path(data: bytes) -> object:
    """Paths of ledgers in all layouts, and what the id generator makes."""
    path = data.decode("utf-8", "replace")
    way: list[object] = []
    for kind in paths.PathLayout:
        paths.is_ledger_parent(kind, path)
        way.append(_read(lambda kind=kind: paths.ledger_of_path("/ledgers", kind, path)))  # type: ignore[misc]
        if (
            isinstance(way[-1], int) and way[-1] < 2**31
        ):  # beyond, a layout may have no path that is read
            again = paths.ledger_path("/ledgers", kind, way[-1])
            assert paths.ledger_of_path("/ledgers", kind, again) == way[-1]
    marked = _read(lambda: paths.ledger_of_underreplicated(path))
    if isinstance(marked, int):
        again = paths.underreplicated_path("/ledgers", marked)
        assert paths.ledger_of_underreplicated(again) == marked
    made = _read(lambda: paths.generated_id(path))
    assert not isinstance(made, int) or 0 <= made < 2**63, f"{path} makes the id {made}"
    return tuple(type(each) for each in (*way, marked, made))


def _read(read: Callable[[], int | None]) -> int | str | None:
    try:
        return read()
    except EncodingError as error:
        return str(error)


def _words(error: EncodingError) -> str:
    """Which error, without the numbers and what it quotes."""
    return "".join(letter for letter in str(error)[:48].split("'")[0] if not letter.isdigit())


def _ledgers() -> list[bytes]:
    group = vectors("metadata.json")["ledger_metadata"]  # type: ignore[index]
    return [
        data for data in hex_in(group, "bytes_hex", "rewritten_unchanged_hex") if len(data) < 1500
    ]


def _small() -> list[bytes]:
    groups = {name: cases for name, cases in vectors("metadata.json").items() if name != "about"}  # type: ignore[attr-defined]
    found = [
        *hex_in(groups, "bytes_hex"),
        *hex_in(vectors("availability.json"), "bytes_hex", "encoded"),
    ]
    made = []
    for number, codec in enumerate(CODECS.values()):
        for data in found:
            try:
                codec.decode(data)
            except EncodingError:
                continue
            if len(data) < 1000:
                made.append(bytes((number,)) + data)
    return made


def _paths() -> list[bytes]:
    made = []
    for ledger in (0, 7, 1234567890, 2**31, 2**63 - 1):
        for kind in paths.PathLayout:
            made.append(paths.ledger_path("/ledgers", kind, ledger))
        made.append(paths.underreplicated_path("/ledgers", ledger))
        made.append(paths.underreplicated_lock_path("/ledgers", ledger))
    made += [
        "/ledgers/ID-0000000007",
        "/ledgers/idgen-long/HOB-0000000001/ID-0000000003",
        "/ledgers/L" + 5000 * "1",
    ]
    return [path.encode() for path in made]


TARGETS = (
    Target("ledgers", "ledger metadata, format versions 1, 2 and 3", _ledgers, check_ledger),
    Target(
        "metadata", "cookies, layouts, lists of entries, registrations, marks", _small, check_small
    ),
    Target("paths", "paths of ledgers and marks, generated ids", _paths, check_path),
)
