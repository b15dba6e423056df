"""The admin API of a bookie, and the status document that it serves."""
