"""``bkbox sim``: simulates a whole cluster in one thread; one seed decides everything."""
