"""The routes of a bookie's admin API, by subject."""
