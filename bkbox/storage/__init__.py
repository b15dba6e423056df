"""The storage of one disk: entry log, index, journal, checkpoint, dirty marker, identity.

Synchronous and single-threaded. Every access to files goes through one ``Files`` object (LevelDB's own files excepted),
times and ids are passed in, and ``disk.DiskStore`` is the interface for the layers above.
"""
