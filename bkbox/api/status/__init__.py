"""Makes the status document of a bookie, with its warnings."""
