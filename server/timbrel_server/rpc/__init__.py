"""The gRPC side of the server: what is done around every call, who may call, health, and the address."""
