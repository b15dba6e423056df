"""Which connections are served, and what they may do: handshake, TLS, authentication, authorization."""
