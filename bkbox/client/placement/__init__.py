"""Which bookies get a ledger: topology, free space, the choice."""
