"""The limbo job: phase two of a boot, for all disks of the bookie, until nothing is in limbo any more.

The supervisor starts it whenever a disk has ledgers in limbo and it does not run. Disks come and go meanwhile: a worker
that was started again lists its ledgers anew.
"""

from __future__ import annotations

import logging

from bkbox.errors import BkboxError
from bkbox.ipc import messages
from bkbox.ipc.asyncchannel import AsyncChannel
from bkbox.jobs.work import Work
from bkbox.repair.environment import Environment
from bkbox.repair.runner import Runner

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5
_COUNT_EVERY_LOOKS = 20


async def repair_limbo(work: Work, environment: Environment, _arguments: dict[str, str]) -> None:
    """Returns when no disk has a ledger in limbo."""
    runner = Runner(environment, work)
    served: dict[str, AsyncChannel] = {}
    work.say("recovering and refilling the ledgers in limbo")
    try:
        looks = 0
        while True:
            for name, disk in list(environment.disks.items()):
                if served.get(name) is not disk and await _serve(runner, disk):
                    served[name] = disk
            idle = await runner.wait(_LOOK_EVERY_S)
            looks += 1
            if idle or looks % _COUNT_EVERY_LOOKS == 0:
                more = [name for name, disk in served.items() if await _has_more(runner, disk)]
                if idle and not more:
                    return
                for name in more:
                    del served[name]
    finally:
        await runner.close()


async def _serve(runner: Runner, disk: AsyncChannel) -> bool:
    if disk.closed:
        return False
    try:
        await runner.serve_disk(disk)
    except BkboxError as error:
        log.warning("a disk could not be asked for its limbo ledgers: %s", error)
        return False
    return True


async def _has_more(runner: Runner, disk: AsyncChannel) -> bool:
    """Whether ledgers are in limbo here that nobody works on: phase one for another disk may put them here."""
    if disk.closed:
        return False
    try:
        stats = await disk.call(messages.GetStats())
    except BkboxError:
        return False
    assert isinstance(stats, messages.Stats)
    return int(stats.values["limbo_ledgers"]) > runner.working_on(disk)
