"""Commands on one bookie: its configuration, its run, its state, its jobs."""
