"""Commands on ledgers: list, show, read, write, end, repair."""
