"""All bookies of a cluster at once: what each says of itself, polled side by side."""
