"""The simulated machine: time, disks, network, metadata store, and bkbox's processes on them."""
