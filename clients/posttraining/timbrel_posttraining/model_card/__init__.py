"""The model card: it says what a bundle is, what it can do and what it cannot, from its evaluation."""
