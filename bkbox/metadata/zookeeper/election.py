"""Elections: the lowest of the ephemeral sequential znodes ``V_…`` below the election's own znode wins.

The auditor's is ``auditorelection``, as with Java. The winner also writes its vote into the election's znode itself,
for operators. A lost session takes its vote with it; the candidate casts a new one. Every candidate watches the
lowest vote, its own included, so a vote that is deleted by hand makes no two winners. Source:
ZkLedgerAuditorManager.java.
"""

from __future__ import annotations

import re
from contextlib import suppress

from bkbox.errors import EncodingError, MetadataError
from bkbox.metadata.tree.election import Election
from bkbox.metadata.tree.nodes import LostReplyError, NoNodeError
from bkbox.metadata.tree.watches import Watch
from bkbox.metadata.underreplication import Candidacy
from bkbox.metadata.zookeeper import writes
from bkbox.metadata.zookeeper.connection import Connection
from bkbox.wire.metadata import underreplication as wire

_VOTE = re.compile("V_([0-9]{10})")


AUDITORS = "underreplication/auditorelection"
"""The auditor's election, below the root."""


class VoteElection(Election):
    """See Election. ``path``: its znode, below ``root``."""

    def __init__(self, zk: Connection, root: str, path: str) -> None:
        self._zk = zk
        self._root = root
        self._election = f"{root}/{path}"

    def candidacy(self, name: str) -> Candidacy:
        return _VoteCandidacy(self._zk, self._root, self._election, name)

    async def holder(self) -> str | None:
        while True:
            votes = await _votes(self._zk, self._election)
            if not votes:
                return None
            node = await self._zk.find(votes[0])
            if node is None:
                continue  # it has just ended: read the next one
            try:
                return wire.decode_holder(node.data)
            except EncodingError as error:
                raise MetadataError(f"znode {votes[0]}: {error}") from error


class _VoteCandidacy(Candidacy):
    """See Candidacy."""

    def __init__(self, zk: Connection, root: str, election: str, name: str) -> None:
        self._zk = zk
        self._root = root
        self._election = election
        self._data = wire.encode_holder(name)
        self._vote: str | None = None
        self._was_elected = False
        self._watch = Watch()

    async def is_elected(self) -> bool:
        self._watch.fired.clear()
        async with self._zk.deadline():
            await self._see_to_vote()
            elected = await self._has_lowest()
            if elected and not self._was_elected:
                with suppress(NoNodeError):
                    await writes.set_data(self._zk, self._election, self._data, None)
        self._was_elected = elected
        return elected

    async def changed(self, wait_s: float) -> None:
        await self._watch.wait(wait_s)

    async def close(self) -> None:
        self._zk.forget(self._watch)
        self._vote = None
        async with self._zk.deadline():
            # All votes of this session: one may have been created while its response was lost.
            while (vote := await self._vote_of_session()) is not None:
                await writes.delete(self._zk, vote)

    async def _has_lowest(self) -> bool:
        while True:
            for vote in await _votes(self._zk, self._election):
                found = await self._zk.exists(vote, self._watch)
                if found is not None:
                    return found.owner == self._zk.session_id
                break  # it has just ended: read again
            else:
                return False  # our vote has gone, too, with its session

    async def _see_to_vote(self) -> None:
        if self._vote is not None:
            found = await self._zk.exists(self._vote)
            if found is not None and found.owner == self._zk.session_id:
                return
        self._vote = None
        await writes.ensure_branch(self._zk, self._root, self._election)
        while self._vote is None:
            try:
                self._vote = await self._zk.try_create_sequential(
                    f"{self._election}/V_", self._data
                )
            except LostReplyError:
                # A vote without a candidate would stay the lowest for as long as the session lives.
                self._vote = await self._vote_of_session()

    async def _vote_of_session(self) -> str | None:
        for vote in reversed(await _votes(self._zk, self._election)):
            found = await self._zk.exists(vote)
            if found is not None and found.owner == self._zk.session_id:
                return vote
        return None


async def _votes(zk: Connection, election: str) -> list[str]:
    """The paths of all votes, the lowest first."""
    try:
        names, _ = await zk.children(election)
    except NoNodeError:
        return []
    votes = sorted((int(match[1]), name) for name in names if (match := _VOTE.fullmatch(name)))
    return [f"{election}/{name}" for _, name in votes]
