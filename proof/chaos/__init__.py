"""``bkbox chaos``: a cluster of real processes under load, hurt in many ways, and a judge of what came of it."""
