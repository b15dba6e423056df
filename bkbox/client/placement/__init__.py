"""Placement of ledgers on bookies: topology, free space, selection."""
