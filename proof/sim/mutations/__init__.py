"""Safety measures switched off one at a time, to see that the simulation notices."""
