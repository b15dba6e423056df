"""Looking at a bookie, its disks and its host for what is wrong, or will be.

Each check says what it found, why that matters and what to do, and never ends the others.
"""
