"""What the jobs of a bookie work with, beside their own ``Work``."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from bkbox.base.ids import BookieId
from bkbox.client.client import Client
from bkbox.ipc.asyncchannel import AsyncChannel
from bkbox.ipc.messages import OpenRepair
from bkbox.metadata.base import MetadataStore


@dataclass(frozen=True, slots=True)
class Environment:
    """``disks``: the channel to the worker of each disk that is in service, by the disk's uuid. A worker that ended
    leaves a channel that is closed, until the next one is there; a job that goes on for long looks anew.
    ``supervisor`` answers calls about the bookie as a whole; None where there is no bookie.
    """

    me: BookieId
    store: MetadataStore
    client: Client
    disks: dict[str, AsyncChannel]
    order: OpenRepair
    rng: random.Random
    wall_ms: Callable[[], int]
    monotonic_s: Callable[[], float]
    supervisor: AsyncChannel | None = None
