"""Copying entries: read from other bookies, written to one bookie."""
