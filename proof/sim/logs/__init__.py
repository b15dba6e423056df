"""The client's logs, simulated on fake ledgers: ``python -m proof.sim.logs``."""
