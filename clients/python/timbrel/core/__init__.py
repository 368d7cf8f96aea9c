"""What a client does apart from talking: addresses, requests, replies, faults, retries.

Nothing here opens a file or a socket, sleeps or reads a clock, so that a blocking client and an asynchronous
one can share it.
"""
