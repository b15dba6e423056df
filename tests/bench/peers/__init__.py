"""bkbox beside Apache's bookie, in one run on one machine: ``make bench-peers``."""
