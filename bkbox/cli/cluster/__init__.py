"""Commands on a cluster: its bookies, placement, autorecovery."""
