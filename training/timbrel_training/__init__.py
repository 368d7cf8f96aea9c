"""Notes to codes to a trained model: data sources, codec, timbre space, note transformer, their training."""
