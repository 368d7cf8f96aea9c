"""Who may call, and how they prove it: tokens, certificates."""
