"""Connections to bookies: addresses, handshake, frames, matching of responses, health."""
