"""What the options of the data source may be, and what is said of those that mean nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark_bookkeeper.offsets import ending, first_of, starting, stop_of
from pyspark_bookkeeper.options import read_options, write_options

from bkbox.errors import ConfigError
from bkbox.wire.metadata.ledger import DigestType

URI = {"metadata.uri": "sqlite:x.db"}


def problems(*, streaming: bool = False, **options: str) -> list[str]:
    given = {**URI, **{name.replace("_", "."): value for name, value in options.items()}}
    with pytest.raises(ConfigError) as caught:
        read_options(given, streaming=streaming)
    return list(caught.value.problems)


def test_defaults() -> None:
    found = read_options({**URI, "LEDGERS": "1,2"}, streaming=False)
    assert (found.uri, found.ledgers, found.password) == ("sqlite:x.db", "1,2", "")
    assert (found.starting_offsets, found.ending_offsets) == ("earliest", "latest")
    assert found.fail_on_data_loss
    assert found.max_bytes_per_partition == 128 << 20
    assert read_options({**URI, "log": "a"}, streaming=True).starting_offsets == "latest"


def test_values() -> None:
    found = read_options(
        {
            **URI,
            "dataset": "d",
            "failOnDataLoss": "FALSE",
            "maxBytesPerPartition": "2m",
            "minPartitions": "7",
            "includeMetadata": "true",
            "readTimeoutMs": "250",
            "bookkeeper.client.protocol": "v3",
            "bookkeeper.client.read_ahead_bytes": "1000",
        },
        streaming=False,
    )
    assert (found.fail_on_data_loss, found.include_metadata, found.min_partitions) == (
        False,
        True,
        7,
    )
    assert found.max_bytes_per_partition == 2 << 20
    assert found.client == {"protocol": "v3", "read_ahead_bytes": 1000, "read_timeout_s": 0.25}
    limited = {**URI, "log": "a", "maxOffsetsPerTrigger": "5"}  # Kafka's name for it
    assert read_options(limited, streaming=True).max_entries_per_trigger == 5


def test_an_unknown_option_is_named_with_the_nearest_that_is_known() -> None:
    assert problems(ledger="1") == ["option 'ledger' is not known: did you mean 'ledgers'?"]
    (text,) = problems(ledgers="1", startingOffset="earliest")
    assert text == "option 'startingOffset' is not known: did you mean 'startingOffsets'?"
    (text,) = problems(ledgers="1", bookkeeper_client_protokoll="v3")
    assert text.endswith("did you mean 'bookkeeper.client.protocol'?")
    (text,) = problems(ledgers="1", zzzzzz="1")
    assert "known are assign, dataset" in text


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read_options({"failOnDataLoss": "yes", "minPartitions": "0", "foo": "1"}, streaming=False)
    assert len(caught.value.problems) == 4  # and the metadata store is missing


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "exactly one of ledgers, assign, select, log, dataset says what is read; given: none"),
        ({"ledgers": "1", "log": "a"}, "given: ledgers, log"),
        ({"ledgers": "1", "maxBytesPerTrigger": "1m"}, "maxBytesPerTrigger is for a stream"),
        ({"ledgers": "1", "minPartitions": "none"}, "option minPartitions = 'none'"),
        (
            {"ledgers": "1", "bookkeeper.client.protocol": "v9"},
            "protocol 'v9' is not one of v2, v3",
        ),
    ],
)
def test_what_does_not_fit(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_options({**URI, **options}, streaming=False)


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("maxBytesPerPartition", "abc", "a size, as 128m or 1g"),
        ("maxBytesPerPartition", "1.5m", "a size, as 128m or 1g"),
        ("maxBytesPerPartition", "", "a size, as 128m or 1g"),
        ("minPartitions", "two", "a whole number, as 128"),
        ("minPartitions", "\u0663", "a whole number, as 128"),
        ("minPartitions", "0", "at least 1"),
        ("numRetries", "99999999999999999999", "a whole number, as 128"),
        ("startingTimestamp", "-5", "milliseconds since 1970"),
        ("failOnDataLoss", "yes", "true or false"),
        ("passwords", "[1]", "JSON as"),
        ("passwords", '{"x": "y"}', "ledger id 'x' is not a number"),
        ("bookkeeper.client.window_bytes", "8m", "a whole number, as 128"),
        ("bookkeeper.client.read_timeout_s", "soon", "a number, as 2.5"),
    ],
)
def test_values_that_cannot_be_read(option: str, value: str, wanted: str) -> None:
    """Each says what it has to be, and nothing of Python."""
    with pytest.raises(ConfigError) as caught:
        read_options({**URI, "ledgers": "1", option: value}, streaming=False)
    found = [text for text in caught.value.problems if text.startswith(f"option {option} = ")]
    assert wanted in found[0]
    assert "literal" not in str(caught.value)


def test_passwords() -> None:
    given = {"password": "p", "passwords": '{"7": "seven"}', "skipUnauthorized": "true"}
    found = read_options({**URI, "ledgers": "1", **given}, streaming=False)
    assert (found.password_of(7), found.password_of(8)) == (b"seven", b"p")
    assert found.skip_unauthorized
    assert problems(log="a", skipUnauthorized="true") == [
        "skipUnauthorized is not for a log: it would have holes that nothing shows"
    ]


def test_a_stream_has_no_end() -> None:
    given = {"endingOffsets": "latest", "endingTimestamp": "5"}
    assert problems(streaming=True, log="a", **given) == [
        "endingOffsets is for a batch: a stream has no end",
        "endingTimestamp is for a batch: a stream has no end",
    ]


def test_times_are_of_logs() -> None:
    found = read_options({**URI, "log": "a", "startingTimestamp": "1700000000000"}, streaming=True)
    assert (found.starting_timestamp, found.timestamp_strategy) == (1_700_000_000_000, "error")
    (text,) = problems(ledgers="1", startingTimestamp="5")
    assert text.startswith("startingTimestamp is for a log, whose records carry a time.")
    assert "select with ctime" in text
    (text,) = problems(log="a", startingTimestamp="yesterday")
    assert text.startswith("option startingTimestamp = 'yesterday'")
    (text,) = problems(log="a", startingOffsetsByTimestampStrategy="first")
    assert text.endswith("it has to be error or latest")


def test_writing() -> None:
    found = write_options({**URI, "dataset": "d", "digestType": "hmac", "custom.owner": "billing"})
    assert found.digest_type is DigestType.HMAC
    assert found.custom == {"owner": b"billing"}
    with pytest.raises(ConfigError, match="option dataset is missing"):
        write_options(URI)
    assert write_options({**URI, "log": "orders"}).log == "orders"
    for wrong, told in (
        ({"dataset": "d", "log": "l"}, "give one of them"),
        ({"log": "l", "custom.owner": "x"}, "custom.KEY is for ledgers of a dataset"),
        ({"log": "not/a/name"}, "option log: 'not/a/name' is no name"),
        ({"dataset": "log:orders"}, "option dataset: 'log:orders' is no name"),
    ):
        with pytest.raises(ConfigError, match=told):
            write_options({**URI, **wrong})
    with pytest.raises(ConfigError, match="'ensemble' is not known: did you mean 'ensembleSize'"):
        write_options({**URI, "dataset": "d", "ensemble": "3"})


def test_offsets() -> None:
    assert first_of(starting("earliest", streaming=True), 7, 10) == 0
    assert first_of(starting("latest", streaming=True), 7, 10) == 10
    given = starting('{"7": 4, "8": -1, "9": -2}', streaming=True)
    assert [first_of(given, ledger, 10) for ledger in (7, 8, 9, 1)] == [4, 10, 0, 0]
    end = ending('{"7": 4, "8": -1}')
    assert [stop_of(end, ledger, 10) for ledger in (7, 8, 1)] == [4, 10, 10]


@pytest.mark.parametrize(
    "text", ["", "soon", "[1]", '{"7": "x"}', '{"x": 1}', '{"7": -3}', '{"7": true}']
)
def test_offsets_that_mean_nothing(text: str) -> None:
    with pytest.raises(ConfigError, match="option startingOffsets"):
        starting(text, streaming=True)


def test_a_batch_begins_before_its_end() -> None:
    for text in ("latest", '{"7": -1}'):
        with pytest.raises(ConfigError, match="cannot begin at the latest"):
            starting(text, streaming=False)
    for text in ("earliest", '{"7": -2}'):
        with pytest.raises(ConfigError, match="cannot end at the earliest"):
            ending(text)
