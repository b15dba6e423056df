"""The debug bundle: one file with all that remote support needs to know of a bookie, without its secrets."""
