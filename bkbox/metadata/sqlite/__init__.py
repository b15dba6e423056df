"""The metadata store in one SQLite file, for the bookies and clients of one host."""
