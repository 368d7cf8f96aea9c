"""The model card: what a bundle is, what it can do and what it cannot, written from what was measured."""
