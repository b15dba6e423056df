"""Shared by all commands: options, output, exit codes, progress bars, signals."""
