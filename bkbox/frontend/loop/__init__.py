"""The compiled parts of the front-end: event loop, connections, routing, requests to the workers."""
