"""Background work on a disk: compaction, scrub, scan of the index."""
