"""The limbo job: phase two of a boot, for all disks of the bookie, until no ledger is in limbo any more.

The supervisor starts it whenever a disk has ledgers in limbo and the job does not run. Disks come and go meanwhile: a
worker that was restarted lists its ledgers again.
"""

from __future__ import annotations

import logging

from bkbox.errors import BkboxError
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.messages.process import GetStats, Stats
from bkbox.jobs.context import JobContext
from bkbox.repair.context import Environment
from bkbox.repair.limbo.limbo_repair import LimboRepair

log = logging.getLogger(__name__)

_POLL_INTERVAL_S = 0.5
_COUNT_EVERY_POLLS = 4


async def repair_limbo(
    work: JobContext, environment: Environment, _arguments: dict[str, str]
) -> None:
    """Returns when no disk has a ledger in limbo."""
    runner = LimboRepair(environment, work)
    served: dict[str, AsyncChannel] = {}
    work.set_step("recovering and refilling the ledgers in limbo")
    try:
        polls = 0
        while True:
            for name, disk in list(environment.disks.items()):
                if served.get(name) is not disk and await _serve(runner, disk):
                    served[name] = disk
            idle = await runner.wait(_POLL_INTERVAL_S)
            polls += 1
            if idle or polls % _COUNT_EVERY_POLLS == 0:
                left = {name: await _in_limbo(disk) for name, disk in served.items()}
                if None not in left.values():
                    runner.expect(sum(filter(None, left.values())))
                # Phase one for another disk may have put ledgers into limbo here that are not worked on.
                more = [
                    name
                    for name, count in left.items()
                    if count is not None and count > runner.working_on(served[name])
                ]
                if idle and not more:
                    return
                for name in more:
                    del served[name]
    finally:
        await runner.close()


async def _serve(runner: LimboRepair, disk: AsyncChannel) -> bool:
    if disk.closed:
        return False
    try:
        await runner.serve_disk(disk)
    except BkboxError as error:
        log.warning("a disk could not be asked for its limbo ledgers: %s", error)
        return False
    return True


async def _in_limbo(disk: AsyncChannel) -> int | None:
    """The number of ledgers in limbo on a disk; None where the disk does not report it."""
    if disk.closed:
        return None
    try:
        stats = await disk.call(GetStats())
    except BkboxError:
        return None
    assert isinstance(stats, Stats)
    return int(stats.values["limbo_ledgers"])
