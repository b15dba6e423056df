"""Benchmarks: load on a bookie, on its client, and what the load generator itself can do."""
