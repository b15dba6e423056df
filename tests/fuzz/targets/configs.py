"""What operators write: the configuration, `key=value`, metadata URIs, addresses and ids."""

from __future__ import annotations

from pathlib import Path

from bkbox.base import ids
from bkbox.config import load as config
from bkbox.config import metadata_uri, values
from bkbox.config.schema import SCHEMA
from bkbox.errors import ConfigError, InvalidIdError
from tests.fuzz.target import Target

_WHOLE = config.render(
    {
        "disks": ["/data/a", "/data/b"],
        "metadata": "sqlite:/data/meta.db",
        "listen": "127.0.0.1:3181",
    }
)


class _File(type(Path())):  # type: ignore[misc]
    """A file that holds what it was made with."""

    data = b""

    def read_bytes(self) -> bytes:
        return self.data


def check_config(data: bytes) -> object:
    """A file is loaded, or all problems come with their places; a loaded one can be written and loaded again."""
    path = _File("/etc/bkbox/bookie.toml")
    path.data = data
    problems = config.validate(path, {})
    for problem in problems:
        assert problem.place.startswith(str(path)), problem
    try:
        loaded = config.load(path, {})
    except ConfigError as error:
        if len(error.problems) != len(problems) or not problems:
            raise AssertionError("load and validate do not agree") from error
        return tuple(sorted({_way(problem.text) for problem in problems}))
    assert not problems
    return tuple(name for name in SCHEMA if loaded.provenance[name] != "default")


def check_words(data: bytes) -> object:
    """One word of a command line or of a configuration."""
    text = data.decode("utf-8", "surrogateescape")
    way: list[object] = []
    try:
        uri = metadata_uri.parse(text)
        way.append(type(uri))
        if isinstance(uri, metadata_uri.ZooKeeperUri | metadata_uri.OxiaUri):
            assert metadata_uri.parse(str(uri)) == uri
    except metadata_uri.WrongUriError as error:
        way.append(_way(str(error)))
    address = values.split_address(text)
    if address is not None:
        assert values.split_address(values.join_address(*address)) == address
    for parse in (ids.ledger_id, ids.entry_id, ids.bookie_id):
        try:
            parsed = parse(text)
            assert parse(str(parsed)) == parsed
            way.append(parse)
        except InvalidIdError:
            continue
    try:
        key, value = config.parse_set(text)
        assert config.render({key: value})
        way.append(key)
    except ConfigError as error:
        way.append(_way(str(error)))
    return address is None, tuple(way)


def _way(text: str) -> str:
    return (
        text[:24]
        .split("'")[0]
        .split('"')[0]
        .translate({ord(digit): None for digit in "0123456789"})
    )


def _configs() -> list[bytes]:
    made = [_WHOLE, _WHOLE + 'ack_after = "journal"\n', "disks = [1]\n[a.b]\nc = 1\n", ""]
    for name, item in SCHEMA.items():
        default = item.metadata["default"]
        try:
            made.append(f"{name} = {values.to_toml(default)}\n")
        except TypeError:
            made.append(f'{name} = "x"\n')
    made += ["a = " + "[" * 3000, "\ufeffa = 1", "a = 1" + "0" * 5000, "a.b.c = '''x\n'''"]
    return [text.encode() for text in made]


def _words() -> list[bytes]:
    made = [
        "sqlite:/var/lib/bkbox.db",
        "zk://a:2181;b:2182/ledgers",
        "zk+hierarchical://[::1]:2181/a/b",
        "zk+ms://h:1/x",
        "127.0.0.1:3181",
        "[fe80::1]:65535",
        "bookie-1.example.com:3181",
        "9223372036854775807",
        "-1",
        "frame_bytes_max=5242880",
        'ack_after="write"',
        "listen=0.0.0.0:0",
        "disks=/a,/b",
        "1" * 5000,
        "١٢",
    ]
    made += [f"{name}=1" for name in SCHEMA]
    return [text.encode() for text in made]


TARGETS = (
    Target("config", "configuration files", _configs, check_config, 0.1),
    Target("words", "metadata URIs, addresses, ids, key=value", _words, check_words, 0.2),
)
