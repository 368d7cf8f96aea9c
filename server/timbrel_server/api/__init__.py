"""timbrel.v1.Synthesizer: what each method does."""
