"""Commands on the disks of a bookie: add, drain, replace; collection, compaction, scrub, index."""
