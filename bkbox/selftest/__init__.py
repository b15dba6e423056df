"""Tests of a disk: how long a sync takes, whether it flushes, whether what was synced is
there. Measured, with what no software can know said beside it.
"""
