"""Benchmarks: load on a bookie and on its client, and the ceiling of the load generator itself."""
