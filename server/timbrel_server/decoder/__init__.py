"""The decode graphs, and the memory that they work in."""
