"""One seed, many seeds, and the shortest schedule that still fails."""
