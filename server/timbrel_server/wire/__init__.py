"""gRPC: the server, what stands around every call, health."""
