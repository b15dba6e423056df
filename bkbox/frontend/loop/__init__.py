"""The compiled parts: event loop, connections, routing, requests to the workers."""
