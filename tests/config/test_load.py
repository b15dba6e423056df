"""The configuration: every problem with its place, every value with its source."""

from __future__ import annotations

import json
import os
import pickle
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bkbox.config.load import Problem, load, parse_set, render, validate
from bkbox.config.schema import SCHEMA, Config, metadata_uri_problem
from bkbox.config.values import join_address, key_lines, split_address, to_toml
from bkbox.errors import ConfigError

LEAST = 'listen = "127.0.0.1:3181"\nmetadata = "sqlite:cluster.db"\ndisks = ["a", "b"]\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "bookie.toml"


def loaded(file: Path, text: str, environ: Mapping[str, str] | None = None) -> Config:
    file.write_text(text)
    return load(file, environ or {})


def problems(file: Path, text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """As ``line: text`` or ``variable: text``; also checks that load says the same."""
    file.write_text(text)
    found = [str(problem) for problem in validate(file, environ or {})]
    with pytest.raises(ConfigError) as caught:
        load(file, environ or {})
    assert caught.value.problems == found
    return [text.removeprefix(f"{file}:").removeprefix("environment variable ") for text in found]


# ---- what is read -----------------------------------------------------------------------------


def test_the_least_that_is_needed(file: Path) -> None:
    config = loaded(file, LEAST)
    folder = file.parent
    assert config.disks == (folder / "a", folder / "b")
    assert config.metadata == f"sqlite:{folder}/cluster.db"
    assert config.bookie_id == "127.0.0.1:3181"
    assert (config.advertised_host, config.listen_host) == ("127.0.0.1", "127.0.0.1")
    assert config.listen_port == 3181
    assert (config.journal, config.run_dir) == (None, None)
    assert (config.ack_after, config.restart_backoff_initial_s) == ("sync", 0.1)
    assert config.path == file


def test_every_value_has_its_source_and_the_environment_wins(file: Path) -> None:
    config = loaded(
        file,
        LEAST + "\n# speed\njobs_disk_bytes_per_second = 1\nrepair_entries_in_flight = 3\n",
        {
            "BKBOX_JOBS_DISK_BYTES_PER_SECOND": "2_000",
            "HOME": "/",
            "BKBOX_LEDGER_PASSWORD": "x",
            "BKBOX_KERNEL": "interpreted",
        },
    )
    assert (config.jobs_disk_bytes_per_second, config.repair_entries_in_flight) == (2000, 3)
    sources = config.provenance
    assert sources["jobs_disk_bytes_per_second"] == (
        "environment variable BKBOX_JOBS_DISK_BYTES_PER_SECOND"
    )
    assert sources["repair_entries_in_flight"] == f"{file}:7"
    assert sources["disks"] == f"{file}:3"
    assert sources["log_level"] == "default"
    assert list(sources) == list(SCHEMA) == list(config.values())


def test_every_key_can_come_from_the_environment(file: Path) -> None:
    values = {
        "listen": "10.0.0.5:1",
        "advertised_host": "host",
        "bookie_id": "me",
        "metadata": "sqlite:/m",
        "disks": "/x:/y",
        "journal": "/z",
        "ack_after": "journal",
        "log_level": "debug",
        "run_dir": "/run",
        "disk_usage_max": "0.5",
    }
    rest = {name: item.metadata["default"] for name, item in SCHEMA.items() if name not in values}
    texts = values | {
        name: ";".join(value) if isinstance(value, list) else str(value).lower()
        for name, value in rest.items()
    }
    config = loaded(file, "", {f"BKBOX_{name.upper()}": text for name, text in texts.items()})
    assert config.disks == (Path("/x"), Path("/y"))
    assert config.values() == values | rest | {"disks": ["/x", "/y"], "disk_usage_max": 0.5}
    assert all(source.startswith("environment") for source in config.provenance.values())


def test_a_configuration_goes_to_other_processes_and_to_json(file: Path) -> None:
    config = loaded(file, LEAST)
    assert pickle.loads(pickle.dumps(config)) == config
    assert json.loads(json.dumps(config.values())) == config.values()


def test_relative_paths_count_from_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file.write_text(LEAST + 'journal = "../log/."\nrun_dir = "/run/bkbox/"\n')
    monkeypatch.chdir("/")
    config = load(Path(os.path.relpath(file, "/")), {})
    assert config.journal == tmp_path.parent / "log"
    assert config.run_dir == Path("/run/bkbox")
    assert config.disks[0] == tmp_path / "a"


@pytest.mark.parametrize(
    ("line", "key", "expected"),
    [
        ('topology_script = "racks.sh"', "topology_script", "{folder}/racks.sh"),
        ('rack_map = "racks.json"', "rack_map", "{folder}/racks.json"),
        ('rack_map = "/etc/racks.json"', "rack_map", "/etc/racks.json"),
        ('rack_map = "znode:/bookies"', "rack_map", "znode:/bookies"),
    ],
)
def test_racks_are_where_the_file_says(
    file: Path, tmp_path: Path, line: str, key: str, expected: str
) -> None:
    config = loaded(file, LEAST + line + "\n")
    assert config.values()[key] == expected.format(folder=tmp_path)


@pytest.mark.parametrize("uri", ["zk://a:1;b:2/ledgers", "zk+flat://a:1/x/y"])
def test_the_uri_of_a_zookeeper_is_no_path(file: Path, uri: str) -> None:
    text = LEAST.replace("sqlite:cluster.db", uri)
    assert loaded(file, text).metadata == uri


def test_ipv6_and_advertised_host(file: Path) -> None:
    config = loaded(file, LEAST.replace("127.0.0.1", "[::1]"))
    assert (config.listen_host, config.bookie_id) == ("::1", "[::1]:3181")
    config = loaded(file, LEAST.replace("127.0.0.1", "[::]") + 'advertised_host = "bookie7"\n')
    assert (config.listen_host, config.bookie_id) == ("::", "bookie7:3181")


@pytest.mark.parametrize("text", ["a:1", "[::1]:0", "1.2.3.4:65535", "a-b.c_d:1"])
def test_addresses_come_back(text: str) -> None:
    address = split_address(text)
    assert address is not None
    assert join_address(*address) == text


@pytest.mark.parametrize("text", ["a", ":1", "a:", "::1:2", "[a", "a:b", "a:65536", "a b:1", "/:1"])
def test_what_is_no_address(text: str) -> None:
    assert split_address(text) is None


# ---- what is refused --------------------------------------------------------------------------


def test_all_problems_are_reported_at_once(file: Path) -> None:
    text = (
        'lisen = "a:1"\n'  # 1
        "disks = []\n"
        'segment_bytes_max = "1 GiB"\n'
        "disk_usage_max = 95\n"
        "auto_fix_cookies = 1\n"  # 5
        'ack_after = "never"\n'
    )
    environ = {"BKBOX_STOP_TIMEOUT_S": "soon", "BKBOX_LOGLEVEL": "info", "BKBOX_METADATA": "zk://x"}
    found = problems(file, text, environ)
    assert found == [
        " listen is missing: HOST:PORT where clients reach the bookie; port 0 takes a free one.",
        "1: unknown key lisen; did you mean listen?",
        '2: disks has to be a list of at least one path, for example ["/data/a"], '
        "not an empty list",
        "3: segment_bytes_max has to be a whole number from 4096 to 4294967295, not the text "
        "'1 GiB': write 1073741824, the unit is in the key's name",
        "4: disk_usage_max has to be a number from 0.01 to 1, not 95",
        "5: auto_fix_cookies has to be true or false, without quotes, not 1",
        "6: ack_after has to be one of 'sync', 'write', 'journal', not the text 'never'",
        "BKBOX_LOGLEVEL: unknown key BKBOX_LOGLEVEL; did you mean BKBOX_LOG_LEVEL?",
        "BKBOX_METADATA: metadata 'zk://x': 'x' has to be HOST:PORT, for example "
        "zk1.example.com:2181",
        "BKBOX_STOP_TIMEOUT_S: stop_timeout_s has to be a number from 0.1 to 86400, not the text "
        "'soon'",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("zzzzzz = 1", "unknown key zzzzzz"),
        ("restart_backoff_initial_ms = 1", "did you mean restart_backoff_initial_s?"),
        ("[disk]\nsegment_bytes_max = 1", "unknown key disk; did you mean disks?"),
        ("repair.retry = 1", "unknown key repair"),
        ("log_level = true", "has to be one of"),
        ("log_level = {a = 1}", "not a table"),
        ("stop_timeout_s = true", "has to be a number from 0.1 to 86400, not true"),
        ("stop_timeout_s = nan", "not nan"),
        ("stop_timeout_s = inf", "not inf"),
        ('stop_timeout_s = "500ms"', "write 0.5,"),
        ("frame_bytes_max = 5e6", "has to be a whole number"),
        ("frame_bytes_max = 8388609", "from 1024 to 8388608, not 8388609"),
        ("checkpoint_bytes = -1", "not -1"),
        ("strict_unclean_shutdown = 'yes'", "without quotes, not the text 'yes'"),
        ("journal = 1", "journal has to be a path in quotes, not 1"),
        ("journal = 'a,b'", "has a character that a path here must not have"),
        ('run_dir = "a\\tb"', "has a character that a path here must not have"),
        ("bookie_id = 'a/b'", "bookie id 'a/b' is not allowed"),
        ("bookie_id = 'ReadOnly'", "is not allowed"),
        ("advertised_host = 'a b'", "has to be a host name"),
        ("ack_after = 'journal'", 'ack_after = "journal" needs journal'),
        ("connection_inflight_bytes_max = 2000", "frame_bytes_max (5242880) is more than"),
        ("restart_backoff_max_s = 0.05", "restart_backoff_initial_s (0.1) is more than"),
        (
            'topology_script = "racks.sh"\nrack_map = "znode:/bookies"',
            "topology_script and rack_map both say racks",
        ),
        ("repair_retry_initial_s = 61", "(61.0) is more than repair_retry_max_s (60.0)"),
        ("journal = 'a'", "is named twice"),
        ("journal = 'b/log'", "lies within"),
        ("journal = '.'", "contains"),
        ("listen = 'x:1'", "not TOML: a key is there twice"),
        ("disk_usage_max = ", "not TOML: Invalid value"),
    ],
)
def test_one_problem_with_its_line(file: Path, line: str, expected: str) -> None:
    found = problems(file, LEAST + line + "\n")
    assert found
    assert all(problem.startswith("4: ") for problem in found)
    assert expected in found[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('listen = "3181"', "1: listen '3181': has to be HOST:PORT, for example 10.0.0.5:3181"),
        ("listen = 3181", "1: listen has to be a text in quotes, not 3181"),
        ('listen = ""', "1: listen must not be empty"),
        (
            'listen = "0.0.0.0:3181"',
            "1: listen 0.0.0.0:3181 is no address for clients: set advertised_host",
        ),
        (
            'listen = "127.0.0.1:0"',
            "1: listen with port 0 gives no lasting name: set bookie_id",
        ),
    ],
)
def test_where_to_listen(file: Path, line: str, expected: str) -> None:
    assert problems(file, line + "\n" + LEAST.partition("\n")[2]) == [expected]


def test_port_zero_with_a_name(file: Path) -> None:
    config = loaded(file, LEAST.replace("3181", "0") + 'bookie_id = "b0"\n')
    assert (config.listen_port, config.bookie_id) == (0, "b0")


@pytest.mark.parametrize(
    ("disks", "expected"),
    [
        (["a", "./a/"], "is named twice"),
        (["a", "a/b"], "lies within"),
        (["a/b", "a"], "contains"),
        (["a", "link"], "is the same folder as"),
        (["a", ""], "has to be a path in quotes, not an empty text"),
    ],
)
def test_disks_are_distinct_and_not_nested(file: Path, disks: list[str], expected: str) -> None:
    (file.parent / "link").symlink_to("a")
    text = LEAST.replace('["a", "b"]', json.dumps(disks))
    (found,) = problems(file, text)
    assert found.startswith("3: disks")
    assert expected in found


def test_names_that_only_begin_alike_are_not_nested(file: Path) -> None:
    assert loaded(file, LEAST.replace('"b"', '"ab", "a.b"')).disks[1].name == "ab"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "bookie.toml: cannot be read: No such file or directory"),
        (b"listen = \xff", "bookie.toml: byte 9 is not UTF-8"),
        (b"\n\nlisten = [", "bookie.toml:3: not TOML: Invalid value"),
        (b"a = 1\nb = @\n", "bookie.toml:2: not TOML: Invalid value"),
        (b"listen = " + b"1" * 5000, "bookie.toml:1: not TOML: Exceeds the limit"),
    ],
)
def test_files_that_are_no_configuration(file: Path, content: bytes | None, expected: str) -> None:
    if content is not None:
        file.write_bytes(content)
    (found,) = validate(file, {})
    assert expected in str(found)


def test_a_problem_reads_as_place_and_text() -> None:
    assert str(Problem("x.toml:3", "what")) == "x.toml:3: what"


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("sqlite:x", None),
        ("sqlite:/var/lib/x.db", None),
        ("zk://a:1/ledgers", None),
        ("zk+hierarchical://a:1;[::1]:2/deep/root/", None),
        ("metadata-store:zk:a:1,b:2", None),
        ("metadata-store:zk:a:1;[::1]:2/pulsar/", None),
        ("metadata-store:a:1", None),
        ("metadata-store:zk:", "names no server"),
        ("metadata-store:zk://a:1/ledgers", "without //"),
        ("metadata-store:zk:a", "'a' has to be HOST:PORT"),
        ("metadata-store:zk:a:1/x//y", "'/x//y' is not the path of a znode"),
        ("metadata-store:zk:a:1?password=x", "has to be NAME=FILE"),
        ("metadata-store:oxia://a:6648/ns", None),
        ("metadata-store:oxia://[::1]:6648", None),
        ("metadata-store:oxia://a:6648/?token_file=/x", None),
        ("metadata-store:oxia:a:6648", "bkbox keeps no metadata in oxia"),
        ("metadata-store:oxia:///ns", "has to be metadata-store:oxia://HOST:PORT[/NAMESPACE]"),
        ("metadata-store:oxia://a:6648/ns/x", "has to be metadata-store:oxia://HOST:PORT"),
        ("metadata-store:oxia://a:1,b:2/ns", "names several servers"),
        ("metadata-store:oxia://a/ns", "'a' has to be HOST:PORT"),
        ("metadata-store:oxia://tls://a:1", "has to be metadata-store:oxia://HOST:PORT"),
        ("metadata-store:oxia://a:1/ns?configFilePath=/x", "of token_file, tls_ca_file"),
        ("metadata-store:oxia://a:1/ns?sessionTimeoutMillis=1", "has to be NAME=FILE"),
        ("metadata-store:oxia://a:1/ns?secret_file=/x", "has to be NAME=FILE"),
        ("metadata-store:oxia://a:1/ns?tls_key_file=/x", "belong together"),
        ("metadata-store:rocksdb:/x", "bkbox keeps no metadata in rocksdb"),
        ("sqlite:", "has to be sqlite:PATH, zk://"),
        ("x.db", "for example sqlite:/var/lib/bkbox.db"),
        ("etcd://a:1/ledgers", "has to be sqlite:PATH, zk://"),
        ("zk+ms://a:1/ledgers", "ms (ledgers in a metastore) is not supported"),
        ("zk+legacyhierarchical://a:1/ledgers", "legacyhierarchical is not known"),
        ("zk:/ledgers", "names no server"),
        ("zk:///ledgers", "names no server"),
        ("zk://a;b:2/ledgers", "'a' has to be HOST:PORT"),
        ("zk://a:1", "has to end with the root"),
        ("zk://a:1/", "has to end with the root"),
        ("zk://a:1/x//y", "has to end with the root"),
        ("zk://a:1/x/../y", "has to end with the root"),
    ],
)
def test_metadata_uris(uri: str, expected: str | None) -> None:
    found = metadata_uri_problem(uri)
    assert found is None if expected is None else found is not None and expected in found


# ---- --set and writing ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ack_after=write", ("ack_after", "write")),
        (" stop_timeout_s = 5 ", ("stop_timeout_s", 5)),
        ("stop_timeout_s=0.5", ("stop_timeout_s", 0.5)),
        ("auto_fix_cookies=true", ("auto_fix_cookies", True)),
        ("checkpoint_bytes=8_192", ("checkpoint_bytes", 8192)),
        ("run_dir=/a=b", ("run_dir", "/a=b")),
        ("run_dir=", ("run_dir", "")),
        ("disks=/a:/b", ("disks", ["/a", "/b"])),
    ],
)
def test_set(text: str, expected: tuple[str, object]) -> None:
    found = parse_set(text)
    assert found == expected
    assert type(found[1]) is type(expected[1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ack_after", "'ack_after' is not of the form key=value"),
        ("ackafter=write", "unknown key ackafter; did you mean ack_after?"),
        ("ack_after=often", "ack_after has to be one of"),
        ("checkpoint_bytes=1GB", "write 1000000000,"),
        ("auto_fix_cookies=yes", "auto_fix_cookies has to be true or false, not 'yes'"),
        ("disks=", "disks has to be a list of at least one path"),
    ],
)
def test_set_that_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_set(text)
    assert expected in str(caught.value)


def test_what_is_written_is_read_back_and_explains_every_key(file: Path) -> None:
    values: dict[str, object] = {
        "listen": "127.0.0.1:3181",
        "metadata": "sqlite:/m.db",
        "disks": ["/data/ä", '/data/"quoted"\\'],
        "ack_after": "write",
        "stop_timeout_s": 5,
        "auto_fix_cookies": True,
        "run_dir": "",
    }
    text = render(values)
    assert tomllib.loads(text) == values
    config = loaded(file, text)
    assert config.disks == (Path("/data/ä"), Path('/data/"quoted"\\'))
    assert {name for name, source in config.provenance.items() if source != "default"} == set(
        values
    )
    for name, item in SCHEMA.items():
        assert f"# {item.metadata['doc']}\n" in text
        assert f"\n{name} = " in text or f"\n# {name} = " in text


def test_commented_defaults_are_what_holds_without_them(file: Path) -> None:
    text = render({"listen": "a:1", "metadata": "sqlite:/m.db", "disks": ["/a"]})
    uncommented = "\n".join(
        line.removeprefix("# ") if line.removeprefix("# ").partition(" =")[0] in SCHEMA else line
        for line in text.splitlines()
    )
    assert set(tomllib.loads(uncommented)) == set(SCHEMA)
    assert loaded(file, uncommented).values() == loaded(file, text).values()


def test_what_cannot_be_read_is_not_written() -> None:
    with pytest.raises(ConfigError) as caught:
        render({"listn": "a:1", "disks": ["/a", "/\udc80"], "stop_timeout_s": "1"})
    assert len(caught.value.problems) == 3


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("\x7f\x00\x1b\u2028")
def test_any_text_survives_toml(text: str) -> None:
    assert tomllib.loads(f"a = {to_toml([text, text])}") == {"a": [text, text]}


# ---- lines of keys ----------------------------------------------------------------------------


def test_keys_are_found_where_they_stand_and_nowhere_else() -> None:
    text = '''\
# listen = 1
first = """
listen = "in a text"
\\""" disks = 1
""""
\tsecond = [ # disks = ["x"]
  "metadata = 1", # ]
  [1, 2], { listen = 1 },
]
'third' = 'listen = 1' # listen
"four\\U00000074h" = \'\'\'
disks = 1
'\'\'\'\r
fifth.listen = 2
fifth.disks = 1.5

[table]
disks = 1
[[tables]]
listen = 1
[table."sub".x]
metadata = 1
'''
    lines = key_lines(text)
    assert set(lines) == set(tomllib.loads(text))
    assert lines == {
        "first": 2,
        "second": 6,
        "third": 10,
        "fourth": 11,
        "fifth": 14,
        "table": 17,
        "tables": 19,
    }


_VALUES = st.one_of(
    st.sampled_from(["1", "1.5", "true", "[]", "{}", "[\n1,\n# a = [\n2]", "{ x = [1] }"]),
    st.sampled_from(["'''\na = 1\n'''", '"""\na = 1\n[b]\n\\""""', "'a = 1'", '"\\"[#"']),
    st.text(st.characters(exclude_categories=["Cs"])).map(to_toml),
)
_KEYS = st.one_of(
    st.text("abc_-0", min_size=1, max_size=3),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5).map(to_toml),
)


@given(st.lists(st.tuples(_KEYS, _VALUES, st.sampled_from(["", " # x = 1", "\n\n"]))))
def test_every_key_of_any_document_has_its_line(items: list[tuple[str, str, str]]) -> None:
    text, expected = "", {}
    for key, value, end in items:
        name = next(iter(tomllib.loads(f"{key} = 1")))
        if name not in expected:
            expected[name] = text.count("\n") + 1
            text += f"{key} = {value}{end}\n"
    assert set(tomllib.loads(text)) == set(expected)
    assert key_lines(text) == expected
