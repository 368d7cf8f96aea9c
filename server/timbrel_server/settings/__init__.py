"""The options: what they are, and where they come from."""
