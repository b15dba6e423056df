"""Ledgers: writer, reader, recovery, inspection."""
