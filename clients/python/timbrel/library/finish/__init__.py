"""Chosen notes become files: samples, instrument files, the manifest; or, on a cluster, shards."""
