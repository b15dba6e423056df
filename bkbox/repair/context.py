"""The resources that the jobs of a bookie share, in addition to their own ``Work``."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from bkbox.base.ids import BookieId
from bkbox.client.client import Client
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.messages.repair import OpenRepair
from bkbox.metadata.base import MetadataStore


@dataclass(frozen=True, slots=True)
class Environment:
    """``disks``: the channel to the worker of each disk that is in service, by the disk's uuid. A worker that ended
    leaves a closed channel until the next worker is there; a long job looks the channel up again. ``supervisor``
    handles calls about the bookie as a whole; None where there is no bookie.
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
