"""The faults of the simulated cluster, and their ends."""
