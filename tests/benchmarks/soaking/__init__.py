"""What `soak.py` sets on a server: more notes than it can write, abuse, and eyes on its health and memory."""
