"""Who is who, and who may do what: authentication, roles, TLS. What a connection makes of it is in frontend and
client."""
