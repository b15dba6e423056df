"""Child processes: spawn, heartbeat, restart."""
