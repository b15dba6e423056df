"""What lies behind a metadata URI and is not a store that can be used: each case has its error."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bkbox.base.ids import LedgerId
from bkbox.errors import ConfigError, MetadataError, MetadataUnavailableError
from bkbox.metadata import connect, create
from bkbox.metadata.sqlite import database
from bkbox.metadata.sqlite import store as sqlite
from tests.metadata.metadata_peer import ledger_of

NOBODY = 65_534


def refusal(uri: str, *, create_it: bool = False) -> MetadataError:
    """The error of connecting."""

    async def scenario() -> None:
        await (await (create if create_it else connect)(uri)).close()

    with pytest.raises(MetadataError) as caught:
        asyncio.run(scenario())
    assert uri.partition(":")[2] in str(caught.value)
    return caught.value


def make(path: Path) -> None:
    async def scenario() -> None:
        async with await create(f"sqlite:{path}") as store:
            await store.create_ledger(ledger_of(1))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("zk+ms://host:2181/ledgers", "not supported"),
        ("zk://host:2181", "root of the cluster"),
        ("sqlite:", "sqlite:PATH"),
        ("cluster.db", "sqlite:PATH"),
        ("etcd:/x", "sqlite:PATH"),
    ],
)
def test_a_uri_of_no_use_is_refused(uri: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        asyncio.run(connect(uri))
    with pytest.raises(ConfigError, match=text):
        asyncio.run(create(uri))


def test_connect_does_not_create(tmp_path: Path) -> None:
    error = refusal(f"sqlite:{tmp_path}/none.db")
    assert isinstance(error, MetadataUnavailableError)
    assert "bkbox init" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    error = refusal(f"sqlite:{tmp_path}/none/cluster.db", create_it=True)
    assert isinstance(error, MetadataUnavailableError)
    assert "No such file or directory" in str(error)


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    assert isinstance(refusal(f"sqlite:{tmp_path}"), MetadataUnavailableError)


@pytest.mark.parametrize("create_it", [False, True])
def test_a_file_that_is_not_a_database_stays_as_it_is(tmp_path: Path, create_it: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and long enough to have a header " * 10)
    before = path.read_bytes()
    assert "not a database" in str(refusal(f"sqlite:{path}", create_it=create_it))
    assert path.read_bytes() == before


@pytest.mark.parametrize("create_it", [False, True])
def test_an_empty_file_and_somebody_elses_database_stay_as_they_are(
    tmp_path: Path, create_it: bool
) -> None:
    empty, other = tmp_path / "empty.db", tmp_path / "other.db"
    empty.touch()
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE mine (x)")
    for path in (empty, other):
        before = path.read_bytes()
        error = refusal(f"sqlite:{path}", create_it=create_it)
        assert "is not a metadata store of bkbox" in str(error)
        assert path.read_bytes() == before


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    make(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {sqlite.SCHEMA_VERSION + 1}")
    error = refusal(f"sqlite:{path}", create_it=True)
    known = sqlite.SCHEMA_VERSION
    assert f"schema version {known + 1}; this version of bkbox reads {known}" in str(error)


def test_a_damaged_file_is_an_error_and_no_empty_answer(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    make(path)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)

    async def scenario() -> None:
        async with await connect(f"sqlite:{path}") as store:
            for call in (store.read_ledger(LedgerId(1)), store.cookies(), store.bookies()):
                with pytest.raises(MetadataError, match="malformed"):
                    await call

    asyncio.run(scenario())


def test_the_file_is_its_owners_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    old = os.umask(0)
    try:
        make(path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_any_name_will_do(tmp_path: Path) -> None:
    path = tmp_path / "a b?mode=memory#c%41.db"
    make(path)
    make_again = f"sqlite:{path}"

    async def scenario() -> None:
        async with await connect(make_again) as store:
            await store.read_ledger(LedgerId(1))

    asyncio.run(scenario())
    assert list(tmp_path.iterdir()) == [path]


@contextmanager
def ordinary_user(folder: Path) -> Iterator[None]:
    """Permissions mean nothing to root: be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_may_not_be_written_is_refused_when_connecting() -> None:
    folder = Path(tempfile.mkdtemp())  # pytest's own folder is closed to other users
    try:
        path = folder / "cluster.db"
        make(path)
        path.chmod(0o400)
        with ordinary_user(folder):
            error = refusal(f"sqlite:{path}")
            assert isinstance(error, MetadataUnavailableError)
            assert "may not be written" in str(error)
            folder.chmod(0o500)
            error = refusal(f"sqlite:{folder}/new.db", create_it=True)
            assert isinstance(error, MetadataUnavailableError)
            assert "Permission denied" in str(error)
    finally:
        shutil.rmtree(folder)


def test_a_file_that_is_removed_or_replaced_in_use_takes_no_more_writes(tmp_path: Path) -> None:
    path, away = tmp_path / "cluster.db", tmp_path / "away.db"
    make(path)

    async def scenario() -> None:
        async with await connect(f"sqlite:{path}") as store:
            path.rename(away)
            with pytest.raises(MetadataUnavailableError, match="removed or replaced"):
                await store.create_ledger(ledger_of(2))
            await asyncio.to_thread(make, path)
            with pytest.raises(MetadataUnavailableError, match="removed or replaced"):
                await store.create_ledger(ledger_of(2))
            away.rename(path)
            await store.create_ledger(ledger_of(2))

    asyncio.run(scenario())


def test_a_full_disk_is_reported_and_over_when_there_is_room_again(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    make(path)

    async def scenario() -> None:
        raw = await database.Database.open(path, sqlite.SCHEMA_VERSION, {})
        pages = await raw.read(lambda c: c.execute("PRAGMA page_count").fetchone()[0])

        async def put(size: int) -> None:
            await raw.write(
                lambda c: (
                    c.execute("INSERT INTO cookie VALUES ('a', 0, ?)", (bytes(size),)).rowcount
                )
            )

        await raw.read(lambda c: c.execute(f"PRAGMA max_page_count = {pages}").fetchone())
        with pytest.raises(MetadataUnavailableError, match="full"):
            await put(1_000_000)
        await raw.read(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 1000}").fetchone())
        await put(1_000_000)
        await raw.close()

    asyncio.run(scenario())
