"""Garbage collection, compaction, scrub, refill, quotas."""
