"""Limbo: fetch back what this bookie may have lost, recover open ledgers, end the stuck ones."""
