"""The timbrel server: one bundle, one engine that writes many notes at once, gRPC in front of it."""
