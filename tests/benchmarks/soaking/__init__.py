"""The load of `soak.py`: more notes than a server can write, abuse, and watches on its health and memory."""
