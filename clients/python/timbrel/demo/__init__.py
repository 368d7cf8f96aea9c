"""The demo: notes drawn by a hash, rendered, measured and pictured."""
