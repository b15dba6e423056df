"""Copies entries: one engine reads them from the bookies of a ledger and adds them to target bookies."""
