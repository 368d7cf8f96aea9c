"""Fine-tuning of the timbre encoder, on source notes and the bundle's own, encoded as by `locate`."""
