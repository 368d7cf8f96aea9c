"""Fine-tuning of the timbre encoder, on source notes and the bundle's own, heard as `locate` hears."""
