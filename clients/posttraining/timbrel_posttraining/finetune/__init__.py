"""Fine-tuning of a bundle: samples are placed on its map and learnt beside rehearsal."""
