"""``bkbox chaos``: a cluster of real processes under load, with injected faults, and a checker of its history."""
