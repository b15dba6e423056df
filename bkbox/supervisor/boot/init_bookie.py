"""`bkbox init`: a new bookie's disks are prepared and its cookie is written, once.

A bookie that the metadata store knows is never initialised again: bringing it back is `bkbox cookie repair`.
Directories have to be empty, but for what an interrupted init of the same bookie has left.
"""

from __future__ import annotations

from uuid import uuid4

from bkbox.base.commandline import bookie_command
from bkbox.base.ids import BookieId
from bkbox.config.schema import Config
from bkbox.errors import EncodingError, OperatorError
from bkbox.metadata import create
from bkbox.storage.files import RealFiles
from bkbox.supervisor.boot import cookies
from bkbox.supervisor.boot.cookie_repair import prepare, write_to_metadata
from bkbox.supervisor.disks.disk_inspection import DirState, locked, only_from_init, stamp
from bkbox.wire.metadata.cookie import decode, directories


def _where(cookie: bytes) -> str:
    """The data directories that the cookie of a bookie names."""
    try:
        found = decode(cookie)
    except EncodingError as error:
        return f"with a cookie that cannot be read ({error})"
    return f"with data in {', '.join(directories(found.ledger_dirs)) or 'no folder'}"


async def initialise(config: Config) -> None:
    """Prepare every directory, disks first, the metadata store's cookie last. Raises OperatorError, DiskError."""
    files = RealFiles()
    async with await create(config.metadata, config.metadata_wait_s) as store:
        stored = await store.read_cookie(BookieId(config.bookie_id))
        if stored is not None:
            raise OperatorError(
                f"bookie {config.bookie_id} is known in {config.metadata} already, {_where(stored.value)}. If another "
                "bookie, or one of Apache's, has this id: choose another bookie_id or address. If it is this one: to "
                f"bring it back after a lost disk run `{bookie_command('cookie', 'repair')}`, to start it "
                f"`{bookie_command('run')}`"
            )
        with locked(config, files, create=True):
            evidence = await cookies.gather(config, store, files)
            for item in evidence.directories:
                if item.state is DirState.EMPTY:
                    continue
                ours = item.state in (DirState.GOOD, DirState.STALE)
                if not ours or not only_from_init(files, item.path):
                    raise OperatorError(
                        f"{item.path} is not empty: {item.detail or 'it holds data of this bookie'}"
                    )
            for item in evidence.directories:
                if item.state is DirState.EMPTY:
                    prepare(files, evidence, item, uuid4())
                stamp(files, item.path, evidence.expected)
            await write_to_metadata(store, evidence)
