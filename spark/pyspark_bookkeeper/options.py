"""The options of the data source: names (Kafka's where Kafka has one), permitted values, and errors. Keys are matched
without regard to case, as Spark does.

All problems are reported at once, an unknown option with the known one that is nearest to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from bkbox.base.ids import MAX_ID, ledger_id
from bkbox.base.text import quoted
from bkbox.client.arguments import is_unicode, unknown
from bkbox.client.options import ClientOptions
from bkbox.errors import ConfigError, InvalidIdError
from bkbox.metadata.loglists import log_name
from bkbox.wire.metadata.ledger import DigestType

CLIENT_PREFIX = "bookkeeper.client."
"""Prefix of a field of ClientOptions."""

CUSTOM_PREFIX = "custom."
"""Prefix of a key of the custom metadata of written ledgers."""

_WHAT = ("ledgers", "assign", "select", "log", "dataset")

_OF_BATCHES = ("ending_offsets", "ending_timestamp")
_OF_STREAMS = ("max_bytes_per_trigger", "max_entries_per_trigger")

_FROM_SPARK = frozenset({"checkpointlocation", "queryname"})
"""Spark's own options, which are passed along."""


_DIGITS = re.compile(r"-?[0-9]{1,18}")


def _text(value: str) -> str:
    if not value:
        raise ValueError("it is empty")
    return value


def _unicode(value: str) -> str:
    if not is_unicode(value):
        raise ValueError("it cannot be written in UTF-8")
    return value


def _whole(value: str, what: str = "a whole number, as 128") -> int:
    """ASCII digits only: ``int`` takes more than that, and its message is about Python."""
    text = value.strip()
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"it has to be {what}")
    return int(text)


def _count(value: str, what: str = "a whole number, as 128") -> int:
    number = _whole(value, what)
    if not 1 <= number <= MAX_ID:
        raise ValueError(f"it has to be at least 1 and at most {MAX_ID}")
    return number


def _size(value: str) -> int:
    text, what = value.strip().lower(), "a size, as 128m or 1g"
    for unit, shift in (("k", 10), ("m", 20), ("g", 30), ("t", 40)):
        for ending in (f"{unit}ib", f"{unit}b", unit):
            if text.endswith(ending):
                return _count(text.removesuffix(ending), what) << shift
    return _count(text.removesuffix("b"), what)


def _flag(value: str) -> bool:
    text = value.strip().lower()
    if text not in ("true", "false"):
        raise ValueError("it has to be true or false")
    return text == "true"


def _instant(value: str) -> int:
    number = _whole(value, "milliseconds since 1970, as 1767225600000")
    if number < 0:
        raise ValueError("it has to be milliseconds since 1970, as 1767225600000")
    return number


def _passwords(value: str) -> Mapping[int, bytes]:
    try:
        given = json.loads(value)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
        raise ValueError('it has to be JSON as {"7": "password of ledger 7"}')
    try:
        return {int(ledger_id(ledger)): text.encode() for ledger, text in given.items()}
    except (InvalidIdError, UnicodeEncodeError) as error:
        raise ValueError(str(error)) from None


def _strategy(value: str) -> str:
    text = value.strip().lower()
    if text not in ("error", "latest"):
        raise ValueError("it has to be error or latest")
    return text


def _digest(value: str) -> DigestType:
    try:
        return DigestType[value.strip().upper()]
    except KeyError:
        raise ValueError(
            f"it has to be one of {', '.join(each.name for each in DigestType)}"
        ) from None


def _seconds(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError("it has to be a number, as 2.5") from None


_CLIENT: dict[type, Callable[[str], Any]] = {bool: _flag, int: _whole, float: _seconds}
"""Parsers of the client options' values, by the types of their defaults."""


def _option(name: str, parse: Callable[[str], Any], default: Any = MISSING) -> Any:
    metadata = {"name": name, "parse": parse}
    return (
        field(metadata=metadata)
        if default is MISSING
        else field(default=default, metadata=metadata)
    )


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Options of all queries."""

    uri: str = _option("metadata.uri", _text)
    metadata_timeout_ms: int = _option("metadataTimeoutMs", _count, 30_000)
    password: str = _option("password", _unicode, "")
    log: str | None = _option("log", _text, None)
    dataset: str | None = _option("dataset", _text, None)
    client: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str = ""


@dataclass(frozen=True, kw_only=True)
class ReadOptions(CommonOptions):
    """Options of a batch or a stream that reads. ``password``: in UTF-8; ``*_bytes``: sizes, 64m is 64 MiB.
    ``passwords``: of single ledgers; ``skip_unauthorized``: ledgers with other passwords are left out."""

    ledgers: str | None = _option("ledgers", _text, None)
    assign: str | None = _option("assign", _text, None)
    select: str | None = _option("select", _text, None)
    passwords: Mapping[int, bytes] | None = _option("passwords", _passwords, None)
    skip_unauthorized: bool = _option("skipUnauthorized", _flag, False)
    starting_offsets: str = _option("startingOffsets", _text, "")
    ending_offsets: str = _option("endingOffsets", _text, "latest")
    starting_timestamp: int | None = _option("startingTimestamp", _instant, None)
    ending_timestamp: int | None = _option("endingTimestamp", _instant, None)
    timestamp_strategy: str = _option("startingOffsetsByTimestampStrategy", _strategy, "error")
    fail_on_data_loss: bool = _option("failOnDataLoss", _flag, True)
    min_partitions: int = _option("minPartitions", _count, 1)
    max_bytes_per_partition: int = _option("maxBytesPerPartition", _size, 128 << 20)
    max_bytes_per_trigger: int | None = _option("maxBytesPerTrigger", _size, None)
    max_entries_per_trigger: int | None = _option("maxEntriesPerTrigger", _count, None)
    include_metadata: bool = _option("includeMetadata", _flag, False)
    read_timeout_ms: int | None = _option("readTimeoutMs", _count, None)
    num_retries: int = _option("numRetries", _count, 3)

    def password_of(self, ledger: int) -> bytes:
        """The ledger's entry in ``passwords``, otherwise ``password``."""
        return (self.passwords or {}).get(ledger, self.password.encode())


@dataclass(frozen=True, kw_only=True)
class WriteOptions(CommonOptions):
    """Options of a query that writes. Either ``dataset`` or ``log`` is the target."""

    ensemble_size: int = _option("ensembleSize", _count, 3)
    write_quorum: int | None = _option("writeQuorum", _count, None)
    ack_quorum: int | None = _option("ackQuorum", _count, None)
    digest_type: DigestType = _option("digestType", _digest, DigestType.CRC32C)  # noqa: RUF009 a field
    writer_id: str = _option("writerId", _text, "")
    custom: Mapping[str, bytes] = field(default_factory=dict)


def read_options(given: Mapping[str, Any], *, streaming: bool) -> ReadOptions:
    """Raises ConfigError with all problems."""
    problems: list[str] = []
    values = _values(ReadOptions, given, problems)
    chosen = [name for name in _WHAT if values.get(name) is not None]
    if len(chosen) != 1 and not problems:
        what = ", ".join(_WHAT)
        problems.append(
            f"exactly one of {what} says what is read; given: {', '.join(chosen) or 'none'}"
        )
    names = {each.name: each.metadata["name"] for each in fields(ReadOptions) if each.metadata}
    amiss = _OF_BATCHES if streaming else _OF_STREAMS
    why = "a batch: a stream has no end" if streaming else "a stream: a batch reads all there is"
    problems += [f"{names[each]} is for {why}" for each in amiss if each in values]
    if "log" in values and values.get("skip_unauthorized"):
        problems.append("skipUnauthorized is not for a log: it would have holes that nothing shows")
    if "log" not in values:
        problems += [
            f"{names[each]} is for a log, whose records carry a time. Ledgers can be chosen by when they were made: "
            f"select with ctime >= 2026-01-31"
            for each in ("starting_timestamp", "ending_timestamp")
            if each in values
        ]
    values.setdefault("starting_offsets", "latest" if streaming else "earliest")
    return ReadOptions(**_sound(ReadOptions, values, problems))


def write_options(given: Mapping[str, Any]) -> WriteOptions:
    """Raises ConfigError with all problems."""
    problems: list[str] = []
    custom = {
        key[len(CUSTOM_PREFIX) :]: str(value).encode()
        for key, value in given.items()
        if key.lower().startswith(CUSTOM_PREFIX)
    }
    others = {
        key: value for key, value in given.items() if not key.lower().startswith(CUSTOM_PREFIX)
    }
    values = _values(WriteOptions, others, problems)
    chosen = [name for name in ("dataset", "log") if name in values]
    if not chosen and not problems:
        problems.append(
            "option dataset is missing: the name under which the ledgers are published (or log: that of a log)"
        )
    if len(chosen) == 2:
        problems.append("dataset and log both say where rows go: give one of them")
    if "log" in values:
        problems += _named("log", values["log"])
        if custom:
            problems.append(
                "custom.KEY is for ledgers of a dataset: those of a log are the log's own"
            )
    elif chosen:
        problems += _named("dataset", values["dataset"])
    return WriteOptions(**_sound(WriteOptions, {**values, "custom": custom}, problems))


def _named(option: str, name: str) -> list[str]:
    try:
        log_name(name)
    except InvalidIdError as error:
        return [f"option {option}: {error}"]
    return []


def _values(kind: type[Any], given: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    known = {each.metadata["name"].lower(): each for each in fields(kind) if each.metadata}
    aliases = {"maxoffsetspertrigger": "maxentriespertrigger"}
    values: dict[str, Any] = {}
    client: dict[str, Any] = {}
    for key, value in given.items():
        name = aliases.get(key.lower(), key.lower())
        if name == "checkpointlocation":
            values["checkpoint"] = str(value)
        if name in _FROM_SPARK:
            continue
        if name.startswith(CLIENT_PREFIX):
            _client_option(key[len(CLIENT_PREFIX) :], str(value), client, problems)
        elif name in known:
            each = known[name]
            try:
                values[each.name] = each.metadata["parse"](str(value))
            except ValueError as error:
                problems.append(f"option {each.metadata['name']} = {quoted(str(value))}: {error}")
        else:
            problems.append(unknown(key, [each.metadata["name"] for each in known.values()]))
    values["client"] = client
    if "uri" not in values:
        problems.append("option metadata.uri is missing: the metadata store of the cluster")
    return values


def _client_option(name: str, text: str, client: dict[str, Any], problems: list[str]) -> None:
    kinds = {each.name: each for each in fields(ClientOptions)}
    by_lower = {each.lower(): each for each in kinds}
    found = by_lower.get(name.lower())
    if found is None:
        problems.append(unknown(f"{CLIENT_PREFIX}{name}", [CLIENT_PREFIX + each for each in kinds]))
        return
    default = kinds[found].default
    parse: Callable[[str], Any] = _CLIENT.get(type(default), str)
    try:
        client[found] = parse(text)
    except ValueError as error:
        problems.append(f"option {CLIENT_PREFIX}{found} = {quoted(text)}: {error}")


def _sound(kind: type[Any], values: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    try:
        ClientOptions(**values["client"])
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    if values.get("read_timeout_ms"):
        values["client"].setdefault("read_timeout_s", values["read_timeout_ms"] / 1000)
    return values
