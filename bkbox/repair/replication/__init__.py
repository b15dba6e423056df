"""Autorecovery: auditor, replication worker, copies of single ledgers."""
