"""What a seed decides before anything happens."""
