"""Authentication, roles, quotas and TLS. Their use by connections is in frontend and client."""
