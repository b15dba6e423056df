"""The files of a log: records, segments, the journal. No index."""
