"""The client apart from its talking: requests, replies, the bookkeeping of streams, faults, retries.

Nothing here opens a file or a socket, sleeps or reads a clock, so that all of it can be tested with plain
values, and driven by any loop.
"""
