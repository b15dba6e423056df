"""Inputs that nobody would write: for everything that reads bytes which somebody else wrote."""
