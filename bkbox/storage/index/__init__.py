"""The index: memtable, extents, LevelDB."""
