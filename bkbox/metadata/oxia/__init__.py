"""The metadata store on Oxia, in the records that Pulsar's driver ``metadata-store:oxia:`` uses."""

import os

# Before gRPC is loaded. Its handler of fork starts a thread in the child, which aborts it if Python's subprocess closes
# the thread's descriptors before it executes the program (grpc/grpc#43055): PySpark starts Java in that way. A process
# that was forked from a client's uses no client (ForkedError).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from bkbox.metadata.oxia.store import OxiaStore, init_cluster

__all__ = ["OxiaStore", "init_cluster"]
