"""Access of connections: handshake, TLS, authentication, authorization."""
