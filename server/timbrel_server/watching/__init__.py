"""What operators see, and what looks after the engine."""
